#!/bin/sh
# release_proofs.sh PYTHON ENVIRONMENT: the chart's checks that `make test` and `make proofs` skip; checkpoints on a
# server that speaks S3; loggers and agents of others with their real packages. One that is skipped here is a failure.
#   ROLLCAST_SHARED_DATA  folder whose crds/ has the definitions of JobSet, KEDA and the Prometheus operator
#   ROLLCAST_WEB          1 = links of the documents to the web are followed as well; others may be away, so nobody has to
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
export ROLLCAST_CHECKOV ROLLCAST_INSTALL_IMAGES=1
"$environment/bin/python" -m pytest -rs --junitxml="$proofs/report.xml" \
	tests/chart/test_matrix.py tests/chart/test_checkov.py tests/chart/test_image_lists.py
# Beside the environment: S3's client asks for an older dateutil than the Kubernetes client does.
if [ ! -d "$proofs/s3" ]; then
	"$environment/bin/pip" install -q --target "$proofs/s3" s3fs==2026.9.0 moto==5.2.5 flask==3.1.3 flask-cors==6.0.5 \
		py-partiql-parser==0.6.3
fi
PYTHONPATH=$proofs/s3 "$environment/bin/python" -m pytest -rs --junitxml="$proofs/s3.xml" \
	tests/trainer/test_object_storage.py tests/weights/test_store_s3.py
# An environment of its own above the other: what loggers bring may not change what everything else is tested with.
if [ ! -d "$proofs/loggers" ]; then
	"$environment/bin/python" -m venv "$proofs/loggers"
	own=$("$proofs/loggers/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
	"$environment/bin/python" -c \
		'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' >"$own/below.pth"
	"$proofs/loggers/bin/pip" install -q -r requirements/loggers.txt
fi
"$proofs/loggers/bin/python" -m pytest -rs --junitxml="$proofs/loggers.xml" tests/loggers
if grep -q "<skipped" "$proofs/report.xml" "$proofs/s3.xml" "$proofs/loggers.xml"; then
	echo "some checks were skipped, see above: nothing is proven by those" >&2
	exit 1
fi
# Agents of others as their authors release them: the core tests send requests that were recorded from them.
"$environment/bin/python" -m benchmarks.clients
if [ "${ROLLCAST_WEB:-0}" = 1 ]; then
	if [ ! -x "$proofs/links/bin/linkchecker" ]; then
		"$python" -m venv "$proofs/links"
		"$proofs/links/bin/pip" install -q linkchecker==10.6.0
	fi
	"$environment/bin/pip" install -q -r requirements/docs.txt
	NO_MKDOCS_2_WARNING=1 "$environment/bin/mkdocs" build --quiet --strict --no-directory-urls --site-dir "$PWD/$proofs/site"
	"$proofs/links/bin/linkchecker" --no-status --check-extern "$proofs/site/index.html"
fi
