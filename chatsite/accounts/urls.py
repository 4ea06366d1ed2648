"""The account page, and what it sends."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
