"""The server of champions: follows the registry, answers, logs. A process of it imports no torch, mlflow or pandas."""
