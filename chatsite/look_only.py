"""An admin page to look at: what it shows is written elsewhere."""

from django.http import HttpRequest

from chatsite.admin_search import SearchableAdmin


class LookOnlyAdmin(SearchableAdmin):
    """Nothing is added, changed or deleted here."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False
