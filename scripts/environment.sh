# Sourced by scripts/quickstart, scripts/test and .ci/run, which stand in the repository root.
#
#   make_environment DIR REQ...     makes or updates the virtual environment DIR so that it holds every REQ
#   compile_kernels DIR             compiles the kernels into Numba's cache, which all environments share
#   mpi_settings                    lets plain `mpiexec -n N` lines run more ranks than this machine has cores

# Else each of the tests' thousands of processes would compile every module that it imports.
unset PYTHONDONTWRITEBYTECODE

say() { printf '%s\n' "emuchain: $*"; }
die() { say "$@" >&2; exit 1; }

find_python() {
    local candidate
    for candidate in ${EMUCHAIN_PYTHON:-python3 python3.13 python3.12 python3.11 python3.10 python3.14}; do
        # The real path: inside an activated environment this is still the Python below it.
        PYTHON=$("$candidate" -c 'import os, sys
if sys.version_info >= (3, 10): print(os.path.realpath(sys.executable))' 2>/dev/null) || continue
        [ -z "$PYTHON" ] || return 0
    done
    die "no Python 3.10 or newer found (looked for ${EMUCHAIN_PYTHON:-python3, python3.10 ... python3.14}; EMUCHAIN_PYTHON=/path/to/python3 names one)"
}

# Debian keeps ensurepip apart (package python3-venv). Without it the environment gets its pip from the system's pip.
make_venv() {
    local venv=$1 packages
    if "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null; then
        "$PYTHON" -m venv --clear "$venv"
    elif "$PYTHON" -c 'import venv, pip' 2>/dev/null; then
        say "no ensurepip here; the environment gets its pip from $PYTHON -m pip"
        "$PYTHON" -m venv --clear --without-pip "$venv"
        packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
        "$PYTHON" -m pip install --quiet --quiet --disable-pip-version-check --target "$packages" pip
    else
        die "$PYTHON cannot make virtual environments; on Debian and Ubuntu: sudo apt install" \
            "$("$PYTHON" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    fi
}

# Of the environment's Python, the checkout's place and some files: another fingerprint means that they changed.
fingerprint() {
    local venv=$1
    shift
    "$venv/bin/python" - "$@" <<'END'
import hashlib, os, sys
digest = hashlib.sha256(f"{sys.version} {os.getcwd()}".encode())
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        digest.update(file.read())
print(digest.hexdigest()[:32])
END
}

make_environment() {
    local venv=$1 made installed requirement line arguments
    shift
    made=$venv/emuchain-made             # fingerprint of the Python and the place
    installed=$venv/emuchain-installed   # for each requirement installed a line: fingerprint of the settings, requirement
    if ! { "$venv/bin/python" -c 'import pip' && [ "$(cat "$made")" = "$(fingerprint "$venv")" ]; } 2>/dev/null; then
        find_python
        say "making the environment $venv with $("$PYTHON" --version)"
        make_venv "$venv"
        fingerprint "$venv" > "$made"
    fi
    for requirement in "$@"; do
        line="$(fingerprint "$venv" setup.cfg pyproject.toml) $requirement"
        grep -qxF "$line" "$installed" 2>/dev/null && continue
        say "installing $requirement into $venv"
        arguments=("$requirement")
        [[ $requirement != .* ]] || arguments=(--editable "$requirement")
        # Twice quiet: errors alone. Python compiles the modules that are imported, a fraction of all.
        "$venv/bin/python" -m pip install --no-compile --quiet --quiet --no-input --disable-pip-version-check "${arguments[@]}"
        printf '%s\n' "$line" >> "$installed"
    done
}

# Ahead of the tests, whose limits of time allow for no compilation. Code that is a month old goes: most is of sources of then.
compile_kernels() {
    local venv=$1 cache=${NUMBA_CACHE_DIR:-kernels/__pycache__}
    say "compiling the kernels that are not compiled yet"
    mkdir -p "$cache"
    find "$cache" -name '*.code' -mtime +30 -delete
    "$venv/bin/python" -m emuchain.kernels.warm
}

mpi_settings() {
    # Open MPI refuses to run as root, to start more ranks than there are cores, and pins two ranks to one core each.
    if [ "$(id -u)" = 0 ]; then
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    fi
    export PRTE_MCA_rmaps_default_mapping_policy=${PRTE_MCA_rmaps_default_mapping_policy-:oversubscribe}
    export PRTE_MCA_hwloc_default_binding_policy=${PRTE_MCA_hwloc_default_binding_policy-none}
    # Each rank is one emulated FPGA on one core.
    export OMP_NUM_THREADS=${OMP_NUM_THREADS-1} NUMBA_NUM_THREADS=${NUMBA_NUM_THREADS-1}
}
