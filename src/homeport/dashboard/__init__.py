"""The dashboard: a page that is built from `web/` into `static/`, and the sessions of the browsers that show it."""
