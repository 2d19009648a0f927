"""The server of champions: follows the registry, predicts, logs. Its processes import no torch, mlflow or pandas."""
