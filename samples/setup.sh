# shellcheck shell=bash disable=SC2034
# Sourced by samples/quickstart.sh, tests/run.sh and .ci/run: what a build needs, in one place.

# What the libraries and the program need, and what the tests need besides.
build_packages="cmake ninja-build g++ libfmt-dev nlohmann-json3-dev libcli11-dev libpugixml-dev libyaml-cpp-dev"
# What the executor needs (without the first it is left out, without the others its MPI back end).
executor_packages="libeigen3-dev libopenmpi-dev openmpi-bin"
test_packages="libgtest-dev libbenchmark-dev python3 python3-jsonschema iproute2"

say() {
    printf '\n== %s\n' "$*"
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "This needs root and there is no sudo: $*" >&2
        return 1
    fi
}

# install_missing PACKAGE...: installs, with apt, those that are not there yet. Without apt it says
# what is needed and goes on: CMake names whatever is really missing.
install_missing() {
    if ! command -v apt-get >/dev/null; then
        echo "No apt-get here. Needed, under the names of Debian: $*"
        return 0
    fi
    local missing=() package
    for package in "$@"; do
        case "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)" in
            *" installed") ;;
            *) missing+=("$package") ;;
        esac
    done
    if [ "${#missing[@]}" -eq 0 ]; then
        echo "Nothing to install."
        return 0
    fi
    echo "Installing: ${missing[*]}"
    # One slow mirror must not end the run; nothing may stop to ask.
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3)
    as_root "${apt[@]}" update
    as_root "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null
}
