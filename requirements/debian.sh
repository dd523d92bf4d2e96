#!/bin/sh
# Install the Debian packages that tests use and this machine lacks, where that is possible; says which and what for.
# DEBIAN=0: install nothing, only say what is missing.
set -u
missing=""
reasons=""
needs() { # needs PROGRAM WHY [PACKAGE]: the package has the program's name if none is given
	command -v "$1" >/dev/null && return
	missing="$missing ${3:-$1}"
	reasons="$reasons
  $1: $2"
}
needs redis-server "Redis 7, beside the 6.2 that pip brings: the wire's contract and its faults on both"
needs prometheus "rules, dashboards and the forecaster's sources against a real Prometheus, and promtool"
needs chromium "the live page in a real browser"
needs zsh "the commands of docs/kubernetes.md in zsh, beside bash"
needs podman "containers of episodes, started for real"
needs runc "containers on a machine with control groups of both versions, which crun refuses"
needs busybox "the image of the tests' containers" busybox-static
[ -n "$missing" ] || exit 0

if [ "${DEBIAN:-1}" != 0 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "apt-get installs what tests need and this machine lacks (DEBIAN=0 keeps it from that):$reasons"
	# RUNLEVEL: the packages' own services must not start.
	# shellcheck disable=SC2086
	apt-get update -q >/dev/null && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
		apt-get install -q -y --no-install-recommends $missing >/dev/null && exit 0
fi
echo "these are not installed, and the tests that need them are skipped and say so:$reasons" >&2
exit 0
