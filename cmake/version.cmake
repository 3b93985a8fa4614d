# The commit goes into reports (bench, doctor). A tree without git says "unknown".
find_package(Git QUIET)
set(FOURFOLD_COMMIT "unknown")
if(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} describe --always --dirty --abbrev=12
                  WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE FOURFOLD_COMMIT_FOUND
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(FOURFOLD_COMMIT_FOUND)
    set(FOURFOLD_COMMIT ${FOURFOLD_COMMIT_FOUND})
  endif()
endif()
configure_file(${CMAKE_SOURCE_DIR}/cmake/version.h.in ${CMAKE_BINARY_DIR}/generated/fourfold_version.h @ONLY)
include_directories(${CMAKE_BINARY_DIR}/generated)
