"""The dashboard: state, reasons and actions of all projects in a browser."""
