"""Estimators by reference: what the product knows of scikit-learn, XGBoost and CatBoost, and how they learn.

The room stands below `training`, which fits by it, and below `export`, which takes its graphs: so that the search's
families and the checks of a spec read the same rows.
"""
