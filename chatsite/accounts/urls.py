"""The account page, and what it sends."""

from django.urls import path

from chatsite.accounts import key_views, pausing_views, views

urlpatterns = [
    path("", views.account, name="account"),
    path("name", views.name, name="account_name"),
    path("sessions/end-others", views.end_other_sessions, name="account_sessions_end"),
    path("sessions/<int:session_id>/end", views.end_session, name="account_session_end"),
    path("keys/new", key_views.new_key, name="account_key_new"),
    path("keys/<str:key>", key_views.one_key, name="account_key"),
    path("keys/<str:key>/rotate", key_views.rotate_key, name="account_key_rotate"),
    path("keys/<str:key>/resume", pausing_views.resume, name="account_key_resume"),
    path("keys/<str:key>/unusual", pausing_views.choose, name="account_key_unusual"),
    path("keys/<str:key>/revoke", key_views.revoke_key, name="account_key_revoke"),
]
