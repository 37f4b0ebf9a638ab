#!/usr/bin/env bash
# Builds the real servers and clients of the end-to-end tests from their Go modules, once, and prints the folder with the
# programs:
#
#   build.sh [servers]     kube-apiserver, kubectl, etcd, kube-controller-manager, kwok
#   build.sh clients       tributary-e2e-clients (client-go and controller-runtime, from ../clients), and
#                          tributary-e2e-consistent (the first controller-runtime that reads its own writes)
#   build.sh helm          helm3 and helm4
#   build.sh k9s           k9s
#   build.sh observability promtool, and a minimal OpenTelemetry collector
#   build.sh issuer        an OpenID Connect issuer, and a client that signs in at this issuer
#   build.sh python        an environment with the Python client; prints an empty line without python3
#   build.sh haproxy       haproxy of Debian's package, unless haproxy is installed; only for the benchmarks
#   build.sh specs         e2e.test (Kubernetes' own end-to-end specs) and kube-scheduler
#   build.sh kwok-stages   the folder of kwok's ready-made stages
#   build.sh definitions   the CustomResourceDefinitions of the Prometheus Operator and cert-manager, of whose kinds the
#                          chart makes objects
#   build.sh key           a digest of everything above, for a cache key of CI
#
# The programs are cached outside the checkout, under a digest of their sources. A second checkout, or a clean build, uses
# the cached programs. TRIBUTARY_TOOLS_CACHE names another folder for the cache.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${TRIBUTARY_TOOLS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tributary/tools}
kubernetes_version=v1.36.3
version=k8s.io/component-base/version
kubernetes_flags="-X $version.gitVersion=$kubernetes_version -X $version.gitMajor=1 -X $version.gitMinor=36"

command -v go >/dev/null || { echo "tools: Go is needed to build kube-apiserver and etcd; install Go 1.26 or newer" >&2; exit 1; }

# key FOLDER...: a digest of all inputs of these modules. It includes the relevant flags of this script, and not the whole
# script, so that other changes of the script rebuild nothing.
key() {
  (cd "$here" && find "$@" -type f \( -name '*.go' -o -name 'go.mod' -o -name 'go.sum' \) -print0 | LC_ALL=C sort -z | xargs -0 cat
   echo "-trimpath -s -w CGO_ENABLED=0 $kubernetes_flags"; go env GOOS GOARCH GOVERSION) | sha256sum | cut -c1-16
}

# python_key: a digest of the requirements of the Python client, and of Python's version.
python_key() {
  (cat "$here/../clients/python/requirements.txt"; python3 --version) | sha256sum | cut -c1-16
}

# build MODULE OUTPUT LDFLAGS PACKAGE: builds one binary, and moves the complete binary to its final path. An OUTPUT that
# ends in .test is the package's test binary.
build() {
  local module=$1 output=$2 ldflags=$3 package=$4 command=(go build)
  case $output in *.test) command=(go test -c) ;; esac
  [ -x "$bin/$output" ] && return 0
  mkdir -p "$bin"
  # The lock keeps two concurrent test runs from compiling the same binary. Without flock (macOS), both runs compile it.
  exec 9>"$bin/.lock"
  if command -v flock >/dev/null; then flock 9; fi
  [ -x "$bin/$output" ] && return 0
  local started=$SECONDS
  echo "tools: building $output …" >&2
  (cd "$here/$module" && CGO_ENABLED=0 "${command[@]}" -trimpath -ldflags "-s -w $ldflags" -o "$bin/.$output.$$" "$package") >&2
  mv "$bin/.$output.$$" "$bin/$output"
  echo "tools: built $output in $((SECONDS - started)) s" >&2
}

case ${1:-servers} in
  servers)
    bin=$cache/servers-$(key kubernetes etcd kwok)
    build kubernetes kube-apiserver "$kubernetes_flags" k8s.io/kubernetes/cmd/kube-apiserver
    build kubernetes kubectl "$kubernetes_flags" k8s.io/kubernetes/cmd/kubectl
    build etcd etcd "" go.etcd.io/etcd/server/v3
    build kubernetes kube-controller-manager "$kubernetes_flags" k8s.io/kubernetes/cmd/kube-controller-manager
    build kwok kwok "" sigs.k8s.io/kwok/cmd/kwok
    echo "$bin"
    ;;
  clients)
    bin=$cache/clients-$(key ../clients)
    build ../clients tributary-e2e-clients "" .
    build ../clients/consistent tributary-e2e-consistent "" .
    echo "$bin"
    ;;
  helm)
    bin=$cache/helm-$(key helm)
    build helm helm3 "" helm.sh/helm/v3/cmd/helm
    build helm helm4 "" helm.sh/helm/v4/cmd/helm
    echo "$bin"
    ;;
  k9s)
    bin=$cache/k9s-$(key k9s)
    build k9s k9s "" github.com/derailed/k9s
    echo "$bin"
    ;;
  observability)
    bin=$cache/observability-$(key prometheus collector)
    # The tag removes service discovery for clouds, a third of the program, which no rule needs.
    GOFLAGS="$(go env GOFLAGS) -tags=remove_all_sd" build prometheus promtool "" github.com/prometheus/prometheus/cmd/promtool
    build collector collector "" .
    echo "$bin"
    ;;
  issuer)
    bin=$cache/issuer-$(key issuer)
    build issuer issuer "" .
    echo "$bin"
    ;;
  python)
    command -v python3 >/dev/null || { echo "tools: no python3: the Python client is left out" >&2; echo; exit 0; }
    folder=$cache/python-$(python_key)
    if [ ! -d "$folder" ]; then
      echo "tools: installing the Python client …" >&2
      mkdir -p "$cache"
      made=$(mktemp -d "$cache/.python.XXXXXX")
      # On Debian, venv is a separate package.
      python3 -m venv "$made" >&2 ||
        { rm -rf "$made"; echo "tools: python3 cannot make an environment (python3-venv): the Python client is left out" >&2; echo; exit 0; }
      "$made/bin/python" -m pip install --quiet --disable-pip-version-check \
        --requirement "$here/../clients/python/requirements.txt" >&2
      # A concurrent run may have finished first.
      if [ -d "$folder" ]; then rm -rf "$made"; else mv "$made" "$folder"; fi
    fi
    echo "$folder/bin/python"
    ;;
  haproxy)
    if command -v haproxy; then exit 0; fi
    command -v apt-get >/dev/null ||
      { echo "tools: no haproxy, and no apt-get to fetch Debian's package with; install haproxy" >&2; exit 1; }
    packages="haproxy liblua5.3-0 libopentracing-c-wrapper0 libopentracing1"
    # A digest of the package index entries, so that a newer package gets another folder.
    folder=$cache/haproxy-$(apt-cache show --no-all-versions $packages 2>/dev/null | sha256sum | cut -c1-16)
    if [ ! -x "$folder/haproxy" ]; then
      echo "tools: fetching haproxy …" >&2
      mkdir -p "$cache"
      made=$(mktemp -d "$cache/.haproxy.XXXXXX")
      (cd "$made" && apt-get download $packages && for package in *.deb; do dpkg-deb --extract "$package" root; done && rm ./*.deb) >&2
      # The wrapper uses the downloaded libraries, and not installed libraries.
      cat > "$made/haproxy" <<'HAPROXY'
#!/usr/bin/env bash
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/root
LD_LIBRARY_PATH=$(echo "$root"/usr/lib/*-linux-gnu) exec "$root/usr/sbin/haproxy" "$@"
HAPROXY
      chmod +x "$made/haproxy"
      if [ -d "$folder" ]; then rm -rf "$made"; else mv "$made" "$folder"; fi
    fi
    echo "$folder/haproxy"
    ;;
  specs)
    bin=$cache/specs-$(key specs)
    build specs e2e.test "$kubernetes_flags" .
    build specs kube-scheduler "$kubernetes_flags" k8s.io/kubernetes/cmd/kube-scheduler
    echo "$bin"
    ;;
  kwok-stages)
    (cd "$here/kwok" && go mod download sigs.k8s.io/kwok >&2 && echo "$(go list -m -f '{{.Dir}}' sigs.k8s.io/kwok)/kustomize/stage")
    ;;
  definitions)
    folder=$cache/definitions-$(key definitions)
    if [ ! -d "$folder" ]; then
      echo "tools: fetching the definitions of others' kinds …" >&2
      mkdir -p "$cache"
      made=$(mktemp -d "$cache/.definitions.XXXXXX")
      (cd "$here/definitions"
       operator=github.com/prometheus-operator/prometheus-operator manager=github.com/cert-manager/cert-manager
       go mod download "$operator" "$manager" >&2
       operator=$(go list -m -f '{{.Dir}}' "$operator") manager=$(go list -m -f '{{.Dir}}' "$manager")
       cp "$operator"/example/prometheus-operator-crd/monitoring.coreos.com_{servicemonitors,prometheusrules}.yaml \
         "$manager"/deploy/crds/cert-manager.io_certificates.yaml "$made")
      # A concurrent run may have finished first.
      if [ -d "$folder" ]; then rm -rf "$made"; else mv "$made" "$folder"; fi
    fi
    echo "$folder"
    ;;
  key)
    echo "$(key kubernetes etcd kwok)-$(key ../clients)-$(key specs)-$(key helm)-$(key k9s)-$(key prometheus collector)-$(key issuer)-$(key definitions)-$(python_key 2>/dev/null || true)"
    ;;
  *)
    echo "tools: unknown argument '$1'; allowed: servers, clients, helm, k9s, observability, issuer, python, haproxy, specs, kwok-stages, definitions, key" >&2
    exit 2
    ;;
esac
