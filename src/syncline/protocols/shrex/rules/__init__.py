"""What makes a notification, a header or a result good. Pure: headers, time and settings are arguments."""
