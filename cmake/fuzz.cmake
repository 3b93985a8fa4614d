# libFuzzer targets, one per fuzz/*_fuzz.cpp: NAME_fuzz in bin/. Needs clang; `ninja fuzz_targets` builds them all.
# They get the sources that parse what comes from outside, built with the sanitizers, and nothing with OpenMP.
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "FOURFOLD_FUZZ needs clang: configure with -DCMAKE_CXX_COMPILER=clang++")
endif()

set(FOURFOLD_FUZZ_FLAGS -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -g1
    -Wno-unknown-pragmas)
set(FOURFOLD_FUZZ_SOURCES ${FOURFOLD_SOURCES})
list(FILTER FOURFOLD_FUZZ_SOURCES INCLUDE REGEX
     "/src/(core|plan)/|/src/formats/format\\.cpp|/src/model/(tokenizer|text_split|byte_pair|unicode|safetensors|hf_config|generation_config|quantization_config|json_text|message_text)")
add_library(fourfold_fuzzed STATIC EXCLUDE_FROM_ALL ${FOURFOLD_FUZZ_SOURCES})
target_include_directories(fourfold_fuzzed PUBLIC include src . kernels)
target_link_libraries(fourfold_fuzzed PUBLIC fourfold_dependencies)
target_compile_options(fourfold_fuzzed PUBLIC ${FOURFOLD_FUZZ_FLAGS})

add_custom_target(fuzz_targets)
file(GLOB FOURFOLD_FUZZ_TARGETS CONFIGURE_DEPENDS fuzz/*_fuzz.cpp)
foreach(source ${FOURFOLD_FUZZ_TARGETS})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL ${source})
  target_link_libraries(${name} PRIVATE fourfold_fuzzed)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer,address,undefined)
  add_dependencies(fuzz_targets ${name})
endforeach()
