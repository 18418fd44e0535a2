# The command. Its pieces are one file a subject in tools/quern.
find_path(QUERN_CJSON_INCLUDE NAMES cjson/cJSON.h REQUIRED)
if(QUERN_STATIC_DEPS)
  # Debian ships cJSON as a shared library only: then libcjson.so.1 travels beside the command (its run path has $ORIGIN).
  find_library(QUERN_CJSON_LIBRARY NAMES libcjson.a cjson REQUIRED)
  set(CMAKE_BUILD_RPATH "$ORIGIN")
else()
  find_library(QUERN_CJSON_LIBRARY NAMES cjson REQUIRED)
endif()
file(GLOB QUERN_TOOL_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tools/quern/*.c)
# tune checks its candidates with the tests' list of hostile inputs: one list for all.
set(QUERN_CHECK_SOURCES hostile hostile_fill hostile_data check)
list(TRANSFORM QUERN_CHECK_SOURCES REPLACE "(.+)" "${CMAKE_CURRENT_SOURCE_DIR}/tests/support/\\1.c")
add_executable(quern_command ${QUERN_TOOL_SOURCES} ${QUERN_CHECK_SOURCES})
set_target_properties(quern_command PROPERTIES OUTPUT_NAME quern C_STANDARD 11)
target_include_directories(quern_command PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/tools ${CMAKE_CURRENT_SOURCE_DIR}/tests SYSTEM PRIVATE ${QUERN_CJSON_INCLUDE})
target_link_libraries(quern_command PRIVATE quern_internal ${QUERN_CJSON_LIBRARY})
