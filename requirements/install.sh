#!/bin/sh
# install.sh PYTHON VENV DEVICE: the virtual environment with the pinned packages for `cpu` or `cuda`, and Rollcast itself.
set -eu
python=$1 venv=$2 device=$3

"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
	echo "error: PYTHON = $python is not Python 3.11, which requirements/$device.txt is pinned for;" \
		"name one: make PYTHON=python3.11" >&2
	exit 2
}
"$python" -m venv "$venv"
pip="$venv/bin/python -m pip --disable-pip-version-check"
install() { # install LIST OPTIONS: the packages of a list, with a line on its progress every ten seconds
	list=$1
	shift
	"$venv/bin/python" requirements/progress.py "$venv" "$list" -- $pip install --progress-bar off --no-compile "$@" -r "$list"
}
if [ "$device" = cpu ]; then
	echo "installing the packages of requirements/cpu.txt into $venv: about 5 GB, some minutes, once"
	install requirements/cpu.txt --no-deps
else
	echo "installing the packages of requirements/cuda.txt into $venv: more than 5 GB, some minutes, once"
	install requirements/cuda.txt
	install requirements/renderers.txt --no-deps
fi
$pip -qq install --no-deps --no-build-isolation --editable .
"$venv/bin/python" -c 'import torch' || {
	echo "error: torch cannot be imported; without a GPU it must be its CPU build: add PyTorch's CPU package index" \
		"with PIP_EXTRA_INDEX_URL, remove $venv and run again" >&2
	exit 2
}
