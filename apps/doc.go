package apps
