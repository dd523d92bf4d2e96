#!/bin/sh
# Install the Debian packages that tests use and this machine lacks, where that is possible.
set -u
missing=""
command -v redis-server >/dev/null || missing="$missing redis-server"
command -v prometheus >/dev/null || missing="$missing prometheus"
command -v chromium >/dev/null || missing="$missing chromium"
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "installing$missing for the tests"
	# RUNLEVEL: the packages' own services must not start.
	# shellcheck disable=SC2086
	apt-get update -q >/dev/null && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
		apt-get install -q -y --no-install-recommends $missing >/dev/null && exit 0
fi
echo "without$missing the tests that need them are skipped" >&2
exit 0
