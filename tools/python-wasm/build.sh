#!/bin/bash
# Builds the Python that the wasm sandbox runs: build.sh WORKDIR
#
# Everything is made below WORKDIR, and no byte of the result depends on where
# that is. KERN_PYTHON_SOURCES may name a directory that holds the files of
# sources.sha256 (and, if it has them, of debs.sha256); what is not there comes
# from Debian's archive through apt, and every file is checked by its hash.
# A finished step leaves WORKDIR/done/STEP and is not repeated.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=${1:?usage: build.sh WORKDIR}
mkdir -p "$work/done"
work=$(cd "$work" && pwd)
jobs=${JOBS:-$(nproc)}
given=${KERN_PYTHON_SOURCES:-}

python=Python-3.13.15
export LC_ALL=C TZ=UTC SOURCE_DATE_EPOCH=1767225600
unset CFLAGS CPPFLAGS LDFLAGS PYTHONPATH PYTHONHOME

llvm=$work/toolchain/usr/lib/llvm-19
target=wasm32-wasip1
speed="-O3 -mbulk-memory -msign-ext -mnontrapping-fptoint -mmutable-globals"
neutral="-ffile-prefix-map=$work=/kern -no-canonical-prefixes"
cross() {
    export LD_LIBRARY_PATH=$work/toolchain/usr/lib/x86_64-linux-gnu:$llvm/lib
    export CC="$llvm/bin/clang --target=$target --sysroot=$work/toolchain/usr"
    export AR=$llvm/bin/llvm-ar RANLIB=$llvm/bin/llvm-ranlib NM=$llvm/bin/llvm-nm STRIP=$llvm/bin/llvm-strip
}

# apt_root makes a private apt that knows bookworm, trixie and their sources,
# so that nothing of the machine's own package state is read or changed.
apt_root() {
    [ -e "$work/apt/ready" ] && return
    local mirror
    mirror=${KERN_DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' | grep -v security | head -1)}
    mkdir -p "$work"/apt/{state/lists/partial,cache/archives/partial,etc/preferences.d,etc/sources.list.d}
    : >"$work/apt/status"
    local keys=/usr/share/keyrings/debian-archive-keyring.gpg suite
    for suite in bookworm trixie; do
        echo "deb [signed-by=$keys] $mirror $suite main"
        echo "deb-src [signed-by=$keys] $mirror $suite main"
    done >"$work/apt/etc/sources.list"
    apt_get update
    touch "$work/apt/ready"
}
apt_get() {
    apt-get -q -o Dir::State="$work/apt/state" -o Dir::State::status="$work/apt/status" \
        -o Dir::Cache="$work/apt/cache" -o Dir::Etc="$work/apt/etc" -o APT::Sandbox::User=root \
        -o APT::Architecture=amd64 "$@"
}

# fetch LIST: puts the files that LIST names into WORKDIR/fetched, checked.
fetch() {
    mkdir -p "$work/fetched"
    local sum name
    while read -r sum name; do
        [ -e "$work/fetched/$name" ] && continue
        if [ -n "$given" ] && [ -e "$given/$name" ]; then
            cp "$given/$name" "$work/fetched/$name"
            continue
        fi
        apt_root
        local package=${name%%_*} rest=${name#*_} version
        case $name in
        *.deb)
            version=${rest%_*}
            version=${version//%3a/:}
            (cd "$work/fetched" && apt_get download "$package=$version")
            ;;
        *)
            version=${rest%.orig.tar.*}
            (cd "$work/fetched" && apt_get source --download-only --only-source \
                "$package=$(apt_get showsrc "$package" 2>/dev/null | sed -n "s/^Version: \(1:\)\?\($version-.*\)/\1\2/p" | head -1)")
            ;;
        esac
    done <"$here/$1"
    (cd "$work/fetched" && sha256sum --check --strict --quiet "$here/$1")
}

toolchain() {
    fetch debs.sha256
    rm -rf "$work/toolchain"
    local sum name
    while read -r sum name; do
        dpkg-deb -x "$work/fetched/$name" "$work/toolchain"
    done <"$here/debs.sha256"
    # Two names under which this clang looks for what Debian puts elsewhere.
    ln -sf wasm-ld "$llvm/bin/wasm-ld-19"
    mkdir -p "$llvm/lib/clang/19/lib/wasm32-unknown-wasip1"
    ln -sf ../wasi/libclang_rt.builtins-wasm32.a "$llvm/lib/clang/19/lib/wasm32-unknown-wasip1/libclang_rt.builtins.a"
}

sources() {
    fetch sources.sha256
    rm -rf "$work/src" && mkdir -p "$work/src"
    tar -xf "$work"/fetched/python3.13_*.orig.tar.xz -C "$work/src"
    tar -xf "$work"/fetched/zlib_*.orig.tar.gz -C "$work/src"
    dpkg-deb -x "$work"/fetched/tzdata_*.deb "$work/src/tzdata"
    [ -e "$work/src/$python/configure" ] || mv "$work"/src/[Pp]ython* "$work/src/$python"
    [ -e "$work/src/zlib/configure" ] || mv "$work"/src/zlib* "$work/src/zlib"
}

build_zlib() { (
    cross
    rm -rf "$work/build/zlib" && mkdir -p "$work/build" && cp -a "$work/src/zlib" "$work/build/zlib"
    cd "$work/build/zlib"
    CHOST=wasm32 CFLAGS="$speed $neutral" ./configure --static --prefix="$work/build/zlib-root" >configure.log
    make -j"$jobs" libz.a >make.log
    make install >>make.log
); }

# The cross build needs a Python of the same version that runs here.
build_native() { (
    rm -rf "$work/build/native" && mkdir -p "$work/build/native" && cd "$work/build/native"
    CFLAGS=-O1 ../../src/$python/configure -q --without-ensurepip --disable-test-modules >configure.log 2>&1
    make -j"$jobs" python build_all >make.log 2>&1
); }

build_wasi() { (
    cross
    rm -rf "$work/build/wasi" && mkdir -p "$work/build/wasi" && cd "$work/build/wasi"
    export PKG_CONFIG_LIBDIR=/nonexistent PKG_CONFIG_PATH=
    export ZLIB_CFLAGS="-I$work/build/zlib-root/include" ZLIB_LIBS="-L$work/build/zlib-root/lib -lz"
    export CONFIG_SITE=$work/src/$python/Tools/wasm/config.site-wasm32-wasi HOSTRUNNER=true
    export CPP="$CC -E" CFLAGS="$speed $neutral -w"
    local module
    for module in _lzma _bz2 _ctypes _curses _curses_panel _uuid _tkinter readline _dbm _gdbm _sqlite3 _ssl \
        _hashlib _multiprocessing _posixshmem mmap resource syslog termios pwd grp fcntl; do
        export py_cv_module_$module=n/a
    done
    ../../src/$python/configure -q --host=$target --build=x86_64-pc-linux-gnu \
        --with-build-python="$work/build/native/python" --with-pymalloc --disable-test-modules --prefix=/usr >configure.log 2>&1
    make -j"$jobs" OPT="-DNDEBUG -O3 -w" libpython3.13.a Programs/python.o pybuilddir.txt >make.log 2>&1
); }

link() { (
    cross
    cd "$work/build/wasi"
    rm -f python-kern.wasm
    make -f Makefile -f "$here/reactor.mk" HERE="$here" OPT="-DNDEBUG -O3 -w" python-kern.wasm >link.log 2>&1
    cp python-kern.wasm "$work/python.wasm"
); }

# The standard library, compiled, and what the build knows of itself without
# the names of the places where it was made.
library() {
    rm -rf "$work/usr" "$work/lib" && mkdir -p "$work/usr/lib"
    cp -a "$work/src/$python/Lib" "$work/lib"
    sed "s#$work#/kern#g; s#$here#/kern#g" "$work"/build/wasi/build/lib*/_sysconfigdata*.py >"$work/lib/_sysconfigdata__wasi_wasm32-wasi.py"
    local run=(env -u LD_LIBRARY_PATH PYTHONHASHSEED=0 "$work/build/native/python" -S -s -B)
    "${run[@]}" "$here/compile.py" "$work/lib" "$work/usr/lib/python3.13"
    "${run[@]}" "$here/zones.py" "$work/src/tzdata/usr/share/zoneinfo" "$work/usr/share/zoneinfo"
}

picture() {
    (cd "$here" && go build -o "$work/snapshot" ./snapshot)
    mkdir -p "$work/out"
    "$work/snapshot" -module "$work/python.wasm" -usr "$work/usr" -boot "$here/bootstrap.py" -o "$work/out"
    (cd "$work/out" && sha256sum python.image library.zip >SHA256SUMS && cat SHA256SUMS)
}

# What the image is made of comes with these licences.
licences() {
    local f
    {
        for f in "src/$python/LICENSE" "src/$python/Modules/expat/COPYING" "src/$python/Modules/_decimal/libmpdec/mpdecimal.h" \
            src/zlib/README toolchain/usr/share/doc/wasi-libc/copyright src/tzdata/usr/share/doc/tzdata/copyright; do
            echo "==== $f"
            case $f in
            *.h) sed -n '1,/\*\//p' "$work/$f" ;;
            */README) sed -n '/^Copyright notice:/,$p' "$work/$f" ;;
            *) cat "$work/$f" ;;
            esac
            echo
        done
    } >"$work/LICENSES"
    mkdir -p "$work/out" && cp "$work/LICENSES" "$work/out/LICENSES"
}

step() {
    [ -e "$work/done/$1" ] && return
    echo "python-wasm: $1" >&2
    "$1"
    touch "$work/done/$1"
}

for s in toolchain sources build_zlib build_native build_wasi link library picture licences; do step $s; done
