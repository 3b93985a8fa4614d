#!/usr/bin/env bash
# From a fresh clone to text: installs what is missing, builds, quantises the demo model to 4 bits, generates.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

build=build-demo
source_model=models/moe-13m
model=$build/moe-13m-nvfp4
prompt='And it came to pass in those days, that the king'

step() { printf '\n== %s\n' "$*"; }

step "packages"
tools/install_packages
echo "all there"

step "build ($build)"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DFOURFOLD_TESTS=OFF > "$build.log" 2>&1 &&
  ninja -C "$build" fourfold >> "$build.log" 2>&1 || { tail -n 40 "$build.log" >&2; echo "demo.sh: the build failed; the whole log is $build.log" >&2; exit 1; }
mv "$build.log" "$build/build.log"
echo "$build/bin/fourfold"

step "quantise $source_model to nvfp4"
if [ -f "$model/config.json" ] && [ -z "$(find "$source_model" "$build/bin/fourfold" -newer "$model/config.json" -print -quit)" ]; then
  echo "$model is there"
else
  rm -rf "$model"
  "$build/bin/fourfold" quantize "$source_model" -o "$model" --format nvfp4 --four-over-six
fi

step "generate"
printf '%s' "$prompt"
"$build/bin/fourfold" generate "$model" --prompt "$prompt" -n 160 --temperature 0.8 --top-p 0.9 \
  --repetition-penalty 1.15 --seed 7
