# The digest of the sources goes into the fingerprint of a run: ${CMAKE_BINARY_DIR}/generated/fourfold_sources.h.
# Included by the project, and run as a script by the build whenever one of the files, or the list of them, changes.
# The first 16 digits of what this prints in the root of the tree (docs/cli.md says so, a test compares):
#   find include kernels src -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' | LC_ALL=C sort |
#     xargs sha256sum | sha256sum
if(CMAKE_SCRIPT_MODE_FILE)
  # -DROOT=<folder> -DOUTPUT=<file>
  file(GLOB_RECURSE paths RELATIVE "${ROOT}" "${ROOT}/include/*.h" "${ROOT}/kernels/*.h"
       "${ROOT}/kernels/*.cu" "${ROOT}/kernels/*.cuh" "${ROOT}/src/*.h" "${ROOT}/src/*.cpp")
  list(SORT paths)
  set(text "")
  foreach(path IN LISTS paths)
    file(SHA256 "${ROOT}/${path}" digest)
    string(APPEND text "${digest}  ${path}\n")
  endforeach()
  string(SHA256 digest "${text}")
  string(SUBSTRING "${digest}" 0 16 digest)
  file(WRITE "${OUTPUT}" "// Written by cmake/source_digest.cmake.\n#pragma once\n\n")
  file(APPEND "${OUTPUT}" "#define FOURFOLD_SOURCES \"${digest}\"\n")
  return()
endif()

file(GLOB_RECURSE FOURFOLD_DIGESTED CONFIGURE_DEPENDS
     ${CMAKE_SOURCE_DIR}/include/*.h ${CMAKE_SOURCE_DIR}/kernels/*.h ${CMAKE_SOURCE_DIR}/kernels/*.cu
     ${CMAKE_SOURCE_DIR}/kernels/*.cuh ${CMAKE_SOURCE_DIR}/src/*.h ${CMAKE_SOURCE_DIR}/src/*.cpp)
# A removed file changes no time stamp among the others: the list is an input of its own.
set(FOURFOLD_DIGESTED_LIST ${CMAKE_BINARY_DIR}/generated/digested_files.txt)
string(REPLACE ";" "\n" FOURFOLD_DIGESTED_LINES "${FOURFOLD_DIGESTED}")
file(CONFIGURE OUTPUT ${FOURFOLD_DIGESTED_LIST} CONTENT "${FOURFOLD_DIGESTED_LINES}\n" @ONLY)

set(FOURFOLD_SOURCES_HEADER ${CMAKE_BINARY_DIR}/generated/fourfold_sources.h)
add_custom_command(
  OUTPUT ${FOURFOLD_SOURCES_HEADER}
  COMMAND ${CMAKE_COMMAND} -DROOT=${CMAKE_SOURCE_DIR} -DOUTPUT=${FOURFOLD_SOURCES_HEADER}
          -P ${CMAKE_SOURCE_DIR}/cmake/source_digest.cmake
  DEPENDS ${FOURFOLD_DIGESTED} ${FOURFOLD_DIGESTED_LIST} ${CMAKE_SOURCE_DIR}/cmake/source_digest.cmake
  COMMENT "Digesting sources" VERBATIM)
