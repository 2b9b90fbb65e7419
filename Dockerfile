# One image for nodes, the pipeline and Spark itself: pip brings Spark, and Java comes from a wheel.
FROM python:3.11-slim

ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /opt/syncline

# ps is what Spark's start scripts ask for. A volume belongs to whom its folder in the image belongs to.
RUN apt-get update \
    && apt-get install -y --no-install-recommends procps \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 syncline \
    && mkdir /data /segments /lake && chown syncline /data /segments /lake

COPY requirements.lock pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-deps -r requirements.lock && pip install --no-deps .

USER syncline
WORKDIR /data
VOLUME /data
EXPOSE 7070 7071 7072 6363 9696
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["syncline", "wait", "--seconds", "0"]

ENTRYPOINT ["syncline"]
CMD ["up"]
