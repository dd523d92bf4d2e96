#!/bin/sh
# proofs.sh PYTHON ENVIRONMENT: the chart's checks that `make test` skips, and every Kubernetes between the oldest and
# the newest. One that is skipped here is a failure.
#   ROLLCAST_SHARED_DATA  folder whose crds/ has the definitions of JobSet, KEDA and the Prometheus operator
#   ROLLCAST_CHECKOV      a checkov program; where it is not set, checkov is installed into .cache/proofs/checkov
# pip's own settings name the indexes, of which one must have the CPU builds of torch.
set -eu
python=$1
environment=$2
proofs=.cache/proofs
if [ ! -d "${ROLLCAST_SHARED_DATA:-}/crds" ]; then
	echo "ROLLCAST_SHARED_DATA = '${ROLLCAST_SHARED_DATA:-}': it names no folder with crds/; put the definitions there" >&2
	exit 2
fi
mkdir -p "$proofs"
if [ -z "${ROLLCAST_CHECKOV:-}" ]; then
	ROLLCAST_CHECKOV=$PWD/$proofs/checkov/bin/checkov
	if [ ! -x "$ROLLCAST_CHECKOV" ]; then
		"$python" -m venv "$proofs/checkov"
		"$proofs/checkov/bin/pip" install -q checkov==3.3.30
	fi
fi
export ROLLCAST_CHECKOV ROLLCAST_INSTALL_IMAGES=1 ROLLCAST_EVERY_KUBERNETES=1
"$environment/bin/python" -m pytest -rs --junitxml="$proofs/report.xml" \
	tests/chart/test_matrix.py tests/chart/test_checkov.py tests/chart/test_images.py
if grep -q "<skipped" "$proofs/report.xml"; then
	echo "some checks were skipped, see above: nothing is proven by those" >&2
	exit 1
fi
