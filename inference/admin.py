"""Models, replicas and requests, to look at. What models.toml says is changed there."""

from django.contrib import admin

from chatsite.look_only import LookOnlyAdmin
from inference.models import Model, Replica, Request


@admin.register(Model)
class ModelAdmin(LookOnlyAdmin):
    list_display = ("name", "title", "context_length", "enabled", "price_input", "price_output")
    list_filter = ("enabled",)
    search_fields = ("name", "title")


@admin.register(Replica)
class ReplicaAdmin(LookOnlyAdmin):
    list_display = ("url", "model", "managed", "enabled")
    list_filter = ("model", "enabled")
    search_fields = ("url", "id")


@admin.register(Request)
class RequestAdmin(LookOnlyAdmin):
    list_display = ("id", "status", "lane", "model", "attempt", "prompt_tokens", "output_tokens", "created_at")
    list_filter = ("status", "lane", "model")
    search_fields = ("id", "owner_id", "user_id", "organization__id")
    date_hierarchy = "created_at"
    ordering = ("-created_at",)
    show_full_result_count = False
