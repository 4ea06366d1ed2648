"""The pages of organizations, and what they send."""

from django.urls import path

from chatsite.accounts import invitation_views
from chatsite.accounts import organization_views as views

urlpatterns = [
    path("", views.current, name="organization_current"),
    path("new", views.new, name="organization_new"),
    path("invitations/<str:token>", invitation_views.invitation, name="invitation"),
    path("<str:organization>/", views.organization, name="organization"),
    path("<str:organization>/name", views.name, name="organization_name"),
    path("<str:organization>/switch", views.switch, name="organization_switch"),
    path("<str:organization>/leave", views.leave, name="organization_leave"),
    path("<str:organization>/invite", views.invite, name="organization_invite"),
    path("<str:organization>/invitations/<str:invitation>/resend", views.resend, name="invitation_resend"),
    path("<str:organization>/invitations/<str:invitation>/withdraw", views.withdraw, name="invitation_withdraw"),
    path("<str:organization>/members/<str:member>", views.one_member, name="organization_member"),
    path("<str:organization>/members/<str:member>/remove", views.remove, name="organization_member_remove"),
    path("<str:organization>/members/<str:member>/keys/<str:key>/revoke", views.revoke_key, name="member_key_revoke"),
]
