#!/usr/bin/env bash
# Installs what is missing (NVRTC too), builds everything, fuzzes for a few seconds where clang is, runs every test.
# Usage: ./test.sh [arguments for ctest]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

tools/install_packages
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DFOURFOLD_TESTS=ON > build.log 2>&1 ||
  { cat build.log >&2; exit 1; }
mv build.log build/configure.log
ninja -C build --quiet

# Short runs find what a change broke; long ones are for people: build-fuzz/bin/NAME_fuzz -help=1.
fuzz_seconds=${FUZZ_SECONDS:-10}
if command -v clang++ > /dev/null && [ "$fuzz_seconds" -gt 0 ]; then
  cmake -S . -B build-fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=RelWithDebInfo -DFOURFOLD_FUZZ=ON \
    -DFOURFOLD_TESTS=OFF > build-fuzz.log 2>&1 || { cat build-fuzz.log >&2; exit 1; }
  mv build-fuzz.log build-fuzz/configure.log
  ninja -C build-fuzz --quiet fuzz_targets
  for target in build-fuzz/bin/*_fuzz; do
    name=$(basename "$target")
    corpus=build-fuzz/corpus/$name
    mkdir -p "$corpus"
    seeds=()
    [ -d "fuzz/seeds/$name" ] && seeds=("fuzz/seeds/$name")
    if "$target" -max_total_time="$fuzz_seconds" -timeout=10 -rss_limit_mb=2048 -artifact_prefix="build-fuzz/$name-" \
        "$corpus" "${seeds[@]}" > "build-fuzz/$name.log" 2>&1; then
      echo "$name: $(grep -E '^Done [0-9]+ runs' "build-fuzz/$name.log")"
    else
      tail -n 40 "build-fuzz/$name.log" >&2
      echo "test.sh: $name failed; the input is build-fuzz/$name-*" >&2
      exit 1
    fi
  done
fi

# The tests that compile GPU kernels need NVRTC; without it they would only say that they were skipped.
tools/fetch_nvrtc --if-missing build/nvrtc
export LD_LIBRARY_PATH="$PWD/build/nvrtc${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

ctest --test-dir build --output-on-failure -j"$(nproc)" "$@"
