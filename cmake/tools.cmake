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
# tune checks its candidates with the tests' lists of hostile inputs and their judges: one list a family for all.
file(GLOB QUERN_CHECK_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tests/support/hostile*.c
  ${CMAKE_CURRENT_SOURCE_DIR}/tests/support/check*.c ${CMAKE_CURRENT_SOURCE_DIR}/tests/support/again.c)
add_library(quern_check STATIC ${QUERN_CHECK_SOURCES})
set_target_properties(quern_check PROPERTIES C_STANDARD 11)
target_include_directories(quern_check PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR}/tools)
target_link_libraries(quern_check PRIVATE quern_internal)
add_executable(quern_command ${QUERN_TOOL_SOURCES})
set_target_properties(quern_command PROPERTIES OUTPUT_NAME quern C_STANDARD 11)
target_include_directories(quern_command PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/tools ${CMAKE_CURRENT_SOURCE_DIR}/tests SYSTEM PRIVATE ${QUERN_CJSON_INCLUDE})
target_link_libraries(quern_command PRIVATE quern_check quern_internal ${QUERN_CJSON_LIBRARY})
