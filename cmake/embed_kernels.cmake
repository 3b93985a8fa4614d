# Embeds every file of kernels/** as text: ${CMAKE_BINARY_DIR}/generated/embedded_kernels.cpp defines what
# src/cuda/jit/embedded_sources.h declares. Included by the project, and run as a script by the build whenever one of
# the files, or the list of them, changes.
if(CMAKE_SCRIPT_MODE_FILE)
  # -DKERNELS=<folder> -DOUTPUT=<file>
  set(DELIMITER "FOURFOLD_KERNEL")  # at most 16 characters
  file(GLOB_RECURSE paths RELATIVE "${KERNELS}" "${KERNELS}/*.cu" "${KERNELS}/*.cuh" "${KERNELS}/*.h")
  list(SORT paths)
  set(text "// Written by cmake/embed_kernels.cmake from kernels/.\n#include \"cuda/jit/embedded_sources.h\"\n\n")
  string(APPEND text "namespace fourfold::cuda {\nnamespace {\n\nconstexpr SourceFile kFiles[] = {\n")
  foreach(path IN LISTS paths)
    file(READ "${KERNELS}/${path}" content)
    string(FIND "${content}" ")${DELIMITER}\"" found)
    if(NOT found EQUAL -1)
      message(FATAL_ERROR "${path} contains )${DELIMITER}\", which ends the embedded text; write it differently")
    endif()
    string(APPEND text "    {\"${path}\", R\"${DELIMITER}(${content})${DELIMITER}\"},\n")
  endforeach()
  string(APPEND text "};\n\n}  // namespace\n\n")
  string(APPEND text "std::span<const SourceFile> embedded_files() noexcept { return kFiles; }\n\n")
  string(APPEND text "}  // namespace fourfold::cuda\n")
  file(WRITE "${OUTPUT}" "${text}")
  return()
endif()

file(GLOB_RECURSE FOURFOLD_KERNEL_FILES CONFIGURE_DEPENDS
     ${CMAKE_SOURCE_DIR}/kernels/*.cu ${CMAKE_SOURCE_DIR}/kernels/*.cuh ${CMAKE_SOURCE_DIR}/kernels/*.h)
# A removed file changes no time stamp among the others: the list is an input of its own.
set(FOURFOLD_KERNEL_LIST ${CMAKE_BINARY_DIR}/generated/kernel_files.txt)
string(REPLACE ";" "\n" FOURFOLD_KERNEL_LINES "${FOURFOLD_KERNEL_FILES}")
file(CONFIGURE OUTPUT ${FOURFOLD_KERNEL_LIST} CONTENT "${FOURFOLD_KERNEL_LINES}\n" @ONLY)

set(FOURFOLD_EMBEDDED ${CMAKE_BINARY_DIR}/generated/embedded_kernels.cpp)
add_custom_command(
  OUTPUT ${FOURFOLD_EMBEDDED}
  COMMAND ${CMAKE_COMMAND} -DKERNELS=${CMAKE_SOURCE_DIR}/kernels -DOUTPUT=${FOURFOLD_EMBEDDED}
          -P ${CMAKE_SOURCE_DIR}/cmake/embed_kernels.cmake
  DEPENDS ${FOURFOLD_KERNEL_FILES} ${FOURFOLD_KERNEL_LIST} ${CMAKE_SOURCE_DIR}/cmake/embed_kernels.cmake
  COMMENT "Embedding kernels" VERBATIM)
target_sources(fourfold_core PRIVATE ${FOURFOLD_EMBEDDED})
