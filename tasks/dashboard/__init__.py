"""The dashboard: state, reasons and actions in a browser."""
