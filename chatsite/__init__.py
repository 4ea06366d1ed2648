"""The site: settings, composition, and the ground that every app stands on."""

from chatsite.celery import app as celery_app

__all__ = ["celery_app"]
