"""Every setting, in one file, from a typed environment. `docs/settings.md` lists what an operator may set."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import structlog
from celery.schedules import crontab
from environs import Env

from chatsite.logs import redact

BASE_DIR = Path(__file__).resolve().parent.parent
env = Env()

# What kind of installation this is. `production` makes the system checks refuse insecure values (chatsite.checks).
ENVIRONMENT = env.str("CHATSITE_ENV", "development")
PRODUCTION = ENVIRONMENT == "production"
DEBUG = env.bool("DEBUG", False)
SITE_NAME = env.str("SITE_NAME", "chatsite")  # in titles and mails
INSECURE_SECRET_KEY = "insecure-development-key-do-not-use-it-in-production"
SECRET_KEY = env.str("SECRET_KEY", INSECURE_SECRET_KEY)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", [] if PRODUCTION else ["localhost", "127.0.0.1", "[::1]", "testserver"])
SITE_URL = env.str("SITE_URL", "").rstrip("/")  # of links in mails, which are not sent without it
CSRF_TRUSTED_ORIGINS: list[str] = env.list("CSRF_TRUSTED_ORIGINS", [])
STATE_DIR = env.path("CHATSITE_STATE", BASE_DIR / "var")
MODELS_FILE = env.path("CHATSITE_MODELS", BASE_DIR / "models.toml")
BACKGROUND = env.bool("CHATSITE_BACKGROUND", True)  # off: nothing calls an engine on its own, for measuring

# Stores
DATABASE_POOL_SIZE = env.int("DATABASE_POOL_SIZE", 16)
DATABASES = {"default": env.dj_db_url("DATABASE_URL", "postgresql://postgres@127.0.0.1:5432/chatsite", conn_max_age=0)}
# A server that hangs has to fail like one that is gone: for these options libpq would wait for minutes.
DATABASES["default"]["OPTIONS"] = {
    "connect_timeout": 3,  # seconds
    "tcp_user_timeout": 10_000,  # milliseconds until what was sent has to have arrived
    **DATABASES["default"].get("OPTIONS", {}),
    "pool": {"min_size": 1, "max_size": DATABASE_POOL_SIZE + 4, "timeout": 5},
}
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True  # else each stale connection costs a request after a restart
REDIS_URL = env.str("REDIS_URL", "redis://127.0.0.1:6379/0")
CACHE_URL = env.str("CACHE_URL", REDIS_URL)
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": CACHE_URL,
        "KEY_PREFIX": "cache",
        "OPTIONS": {"socket_connect_timeout": 2, "socket_timeout": 2},  # seconds; every page waits for it
    }
}

INSTALLED_APPS = [
    "unfold.apps.BasicAppConfig",  # the admin's theme, ahead of what it restyles
    "chatsite.apps.ChatsiteAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "allauth",
    "allauth.account",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "allauth.usersessions",
    "channels",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_htmx",
    "chatsite.apps.ChatsiteConfig",
    "chatsite.accounts.apps.AccountsConfig",
    "chatsite.webhooks.apps.WebhooksConfig",
    "quotas.apps.QuotasConfig",
    "quotas.billing.apps.BillingConfig",
    "inference.apps.InferenceConfig",
    "conversations.apps.ConversationsConfig",
]
MIDDLEWARE = [
    "chatsite.middleware.request_id",
    "chatsite.middleware.content_security_policy",  # outside of all that may answer by itself
    "chatsite.middleware.private_pages",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "chatsite.timezones.local_time",
]
ROOT_URLCONF = "chatsite.urls"
ASGI_APPLICATION = "chatsite.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "chatsite.accounts.context.site",
            ]
        },
    }
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
FORMAT_MODULE_PATH = "chatsite.formats"  # dates as 2026-01-31 14:05:09

# Accounts and security
AUTH_USER_MODEL = "accounts.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
LOGIN_URL = "/accounts/login/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/accounts/login/"
SIGNUP_OPEN = env.bool("SIGNUP_OPEN", True)
ACCOUNT_ADAPTER = "chatsite.accounts.adapter.AccountAdapter"
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "mandatory"
ACCOUNT_CHANGE_EMAIL = True
ACCOUNT_MAX_EMAIL_ADDRESSES = 2  # the one in use, and one that is to take its place
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_LOGIN_ON_PASSWORD_RESET = False
ACCOUNT_FORMS = {
    "login": "chatsite.accounts.forms.LoginForm",
    "signup": "chatsite.accounts.forms.SignupForm",
    "add_email": "chatsite.accounts.forms.AddEmailForm",
    "change_password": "chatsite.accounts.forms.ChangePasswordForm",
    "set_password": "chatsite.accounts.forms.SetPasswordForm",
    "reset_password": "chatsite.accounts.forms.ResetPasswordForm",
    "reset_password_from_key": "chatsite.accounts.forms.ResetPasswordKeyForm",
    "reauthenticate": "chatsite.accounts.forms.ReauthenticateForm",
    "confirm_reauthentication_code": "chatsite.accounts.forms.ConfirmReauthenticationCodeForm",
}
ACCOUNT_EMAIL_NOTIFICATIONS = True  # a mail when the password or the address has changed
ACCOUNT_EMAIL_SUBJECT_PREFIX = ""
ACCOUNT_EMAIL_CONFIRMATION_EXPIRE_DAYS = 3
ACCOUNT_EMAIL_CONFIRMATION_AUTHENTICATED_REDIRECT_URL = "/account/"
PASSWORD_RESET_TIMEOUT = 3600  # seconds
ACCOUNT_REAUTHENTICATION_REQUIRED = True  # the password again, before the address is changed or sign-ins are removed
# Guessing (chatsite.accounts.lockout). Counted in the cache: while it is away nobody can sign in.
ACCOUNT_RATE_LIMITS = {
    "login": "30/m/ip",
    "login_failed": "10/m/ip",  # for any account
    "login_failed_place": "5/5m/key",  # for one account from one network, or in one browser that is known to it
    "login_failed_place_longer": "10/30m/key",
    "login_failed_account": "30/30m/key",  # for one account from all networks, and apart in all known browsers
}
# How many proxies in front are trusted to say in X-Forwarded-For who the client is
TRUSTED_PROXIES = env.int("TRUSTED_PROXIES", 0)
ALLAUTH_TRUSTED_PROXY_COUNT = TRUSTED_PROXIES

# Sign-in through the organisation's own identity provider, where one is named
OIDC_ISSUER = env.str("OIDC_ISSUER", "").rstrip("/")
OIDC_CLIENT_ID = env.str("OIDC_CLIENT_ID", "")
OIDC_CLIENT_SECRET = env.str("OIDC_CLIENT_SECRET", "")
OIDC_NAME = env.str("OIDC_NAME", "single sign-on")
SOCIALACCOUNT_ADAPTER = "chatsite.accounts.adapter.SocialAccountAdapter"
SOCIALACCOUNT_FORMS = {"signup": "chatsite.accounts.forms.SocialSignupForm"}
SOCIALACCOUNT_EMAIL_AUTHENTICATION = True  # the provider's verified address finds the account that is there
SOCIALACCOUNT_EMAIL_AUTHENTICATION_AUTO_CONNECT = True
OIDC_APP: dict[str, Any] = {
    "provider_id": "oidc",
    "name": OIDC_NAME,
    "client_id": OIDC_CLIENT_ID,
    "secret": OIDC_CLIENT_SECRET,
    "settings": {"server_url": OIDC_ISSUER, "oauth_pkce_enabled": True},
}
SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"APPS": [OIDC_APP] if OIDC_ISSUER else []}}

# Mail: printed until EMAIL_URL names a server
for _name, _value in env.dj_email_url("EMAIL_URL", "console:").items():
    globals()[_name] = _value
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env.str("DEFAULT_FROM_EMAIL", "chatsite <noreply@localhost>")
SERVER_EMAIL = DEFAULT_FROM_EMAIL
PUBLIC_SHARES = env.bool("PUBLIC_SHARES", False)  # whether who has a share's address may read it without signing in
CSRF_FAILURE_VIEW = "chatsite.error_responses.csrf_failure"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
SECURE_COOKIES = env.bool("SECURE_COOKIES", PRODUCTION)
SESSION_COOKIE_SECURE = SECURE_COOKIES
CSRF_COOKIE_SECURE = SECURE_COOKIES
ACCOUNT_DEFAULT_HTTP_PROTOCOL = "https" if SECURE_COOKIES else "http"  # of links in mails, whatever the proxy says
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SESSION_ENGINE = "chatsite.accounts.session_store"

# Static files: our own, and the front-end packages that `npm ci` installs
STATIC_URL = "/static/"
STATIC_ROOT = STATE_DIR / "static"
STATICFILES_DIRS = (
    [BASE_DIR / "static", ("vendor", BASE_DIR / "node_modules")]
    if (BASE_DIR / "node_modules").is_dir()
    else [BASE_DIR / "static"]
)
WHITENOISE_USE_FINDERS = not PRODUCTION
WHITENOISE_AUTOREFRESH = DEBUG

# REST
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["chatsite.accounts.authentication.KeyOrSession"],
    "DEFAULT_PERMISSION_CLASSES": [
        "rest_framework.permissions.IsAuthenticated",
        "chatsite.accounts.permissions.HasScope",
    ],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "chatsite.error_responses.drf_exception_handler",
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Chat API",
    "DESCRIPTION": "Conversations, streamed messages, models.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
}
MAX_BODY_BYTES = env.int("MAX_BODY_BYTES", 2 * 1024 * 1024)  # a JSON body
DATA_UPLOAD_MAX_MEMORY_SIZE = MAX_BODY_BYTES
RAW_AUTHENTICATOR = "chatsite.accounts.authentication.authenticate_scope"

# The admin (chatsite.admin_site); its colours are in static/css/admin.css
UNFOLD = {
    "SITE_TITLE": "Chat admin",
    "SITE_HEADER": "Chat admin",
    "SITE_SYMBOL": "forum",
    "STYLES": ["chatsite.admin_site.stylesheet"],
    "SHOW_HISTORY": True,
    "SHOW_BACK_BUTTON": False,
    "SIDEBAR": {"show_search": True, "navigation": "chatsite.admin_site.navigation"},
}

# Inference. What decides who is next, and on which replica, is in inference.scheduling.settings and in the admin
PERSIST_SECONDS = 1.0
CHAT_TEMPERATURE = env.float("CHAT_TEMPERATURE", 0.7)  # an engine's usual default of 1.0 makes small models ramble
REPLICA_SLOTS = env.int(
    "REPLICA_SLOTS", 128
)  # sequences handed to one replica at a time, where models.toml does not say
# tokens/s that a replica reads of prompts, until it has shown it; 0: a prompt of our own tells when it comes up
PREFILL_TOKENS_PER_SECOND = env.float("PREFILL_TOKENS_PER_SECOND", 0.0)
RUNNER_STREAMS = env.int("RUNNER_STREAMS", 512)  # streams of one runner process
COALESCE_SECONDS = env.float("COALESCE_SECONDS", 0.1)  # tokens of a busy stream are gathered up to this long
LOG_TTL_SECONDS = 120  # a token log lives so long after its message is final
FLEX_REQUESTS = env.int("FLEX_REQUESTS", 500)  # of one organization that may wait and run on the flex tier at a time
FLEX_WAIT_SECONDS = env.float("FLEX_WAIT_SECONDS", 600.0)  # the longest wait there
PROMPT_TTL_SECONDS = 3600 + int(FLEX_WAIT_SECONDS)
STOP_WAIT_SECONDS = 2.0
CANCEL_ON_DISCONNECT = False  # native routes: a closed connection does not end a reply
COMPLETIONS_OUTLIVE_CALLERS = False  # OpenAI-compatible routes: a closed connection cancels the call
# What happens to a request's owner, by kind, in the same transaction (inference.owners)
REQUEST_OWNERS = {
    "message": "conversations.replies.MessageOwner",
    "completion": "inference.completions.owner.CompletionOwner",
    "kept_completion": "inference.completions.owner.KeptCompletionOwner",
}
COMPLETION_TOKENS = env.int(
    "COMPLETION_TOKENS", 1024
)  # longest answer of the OpenAI-compatible API, where none is asked
REQUEST_OWNERS_IN_ADMIN = {  # inference.admin_owners
    "message": "conversations.admin_owner.MessagePages",
    "kept_completion": "inference.admin_kept.KeptCallPages",
}
CURRENCY = env.str("CURRENCY", "USD")  # of the prices in models.toml
# Asked when what budgets have spent is read from the ledger (quotas.counters)
OPEN_REQUESTS = "inference.reservations.open_requests"

# Of the organizations that one person makes, how many are on the default plan; others await one (docs/quotas.md)
ORGANIZATIONS_ON_DEFAULT_PLAN = env.int("ORGANIZATIONS_ON_DEFAULT_PLAN", 1)
# Per hour: what a key or a member spends is unusual only from ten times this on (quotas.billing.unusual)
UNUSUAL_SPENDING_FLOOR = env.decimal("UNUSUAL_SPENDING_FLOOR", Decimal("1.00"))
# Webhooks go over https to public addresses. On: http too, to private networks and to this machine, never link-local
WEBHOOKS_TO_PRIVATE_NETWORKS = env.bool("WEBHOOKS_TO_PRIVATE_NETWORKS", False)

# Background work
CELERY_BROKER_URL = env.str("CELERY_BROKER_URL", REDIS_URL)
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TIMEZONE = "UTC"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
# name: task, when, and after how many seconds a run that no worker has begun is dropped
_BEAT: dict[str, tuple[str, timedelta | crontab, int]] = {
    "sweep-requests": ("inference.tasks.sweep_requests", timedelta(seconds=1), 2),
    "forget-idempotent-calls": ("chatsite.accounts.tasks.forget_old_calls", timedelta(hours=1), 600),
    "tell-of-expiring-keys": ("chatsite.accounts.tasks.tell_of_expiring_keys", timedelta(hours=1), 600),
    "forget-kept-calls": ("inference.tasks.forget_kept_calls", timedelta(hours=1), 600),
    "make-ledger-partitions": ("quotas.tasks.make_partitions", timedelta(hours=12), 3600),
    "watch-spending": ("quotas.billing.tasks.watch_spending", timedelta(minutes=5), 240),
    "deliver-webhooks": ("chatsite.webhooks.tasks.deliver", timedelta(seconds=5), 5),
    "forget-old-deliveries": ("chatsite.webhooks.tasks.forget_old", timedelta(days=1), 3600),
    "check-budgets": ("quotas.billing.tasks.check_budgets", timedelta(minutes=1), 50),
    "roll-up-usage": ("quotas.tasks.roll_up_usage", timedelta(minutes=1), 50),
    "check-usage": ("quotas.tasks.check_usage", crontab(hour="2", minute="40"), 6 * 3600),
    "forget-old-sessions": ("chatsite.accounts.tasks.forget_old_sessions", timedelta(days=1), 3600),
}
CELERY_BEAT_SCHEDULE = {
    name: {"task": task, "schedule": when, "options": {"expires": expires}}
    for name, (task, when, expires) in _BEAT.items()
}
CHANNEL_LAYERS: dict[str, dict[str, str]] = {}  # no token and no event goes through a channel layer

# Logs: one JSON object per line, with the request id
LOG_LEVEL = env.str("LOG_LEVEL", "INFO")
LOG_FORMAT = env.str("LOG_FORMAT", "json")
_log_processors: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
]
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "default": {
            "()": structlog.stdlib.ProcessorFormatter,
            "processors": [
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(default=str)
                if LOG_FORMAT == "json"
                else structlog.dev.ConsoleRenderer(colors=False),
                redact,
            ],
            "foreign_pre_chain": _log_processors,
        }
    },
    "filters": {"one_line": {"()": "chatsite.logs.OneLine"}},
    "handlers": {"default": {"class": "logging.StreamHandler", "formatter": "default"}},
    "root": {"handlers": ["default"], "level": LOG_LEVEL},
    "loggers": {
        "daphne": {"level": "WARNING"},
        "django.channels.server": {"level": "WARNING"},
        "asyncio": {"level": "WARNING"},
        "django.security.DisallowedHost": {"filters": ["one_line"]},  # scanners: nothing of ours is wrong
    },
}
structlog.configure(
    processors=[*_log_processors, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
    logger_factory=structlog.stdlib.LoggerFactory(),
    wrapper_class=structlog.stdlib.BoundLogger,
    cache_logger_on_first_use=True,
)
