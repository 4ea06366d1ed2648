"""The account page, and what it sends."""

from django.urls import path

from chatsite.accounts import views

urlpatterns = [
    path("", views.account, name="account"),
    path("name", views.name, name="account_name"),
    path("sessions/end-others", views.end_other_sessions, name="account_sessions_end"),
    path("sessions/<int:session_id>/end", views.end_session, name="account_session_end"),
    path("keys", views.create_key, name="account_keys"),
    path("keys/<str:key>/revoke", views.revoke_key, name="account_key_revoke"),
]
