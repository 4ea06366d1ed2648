"""How dates and numbers are written where a template does not say."""
