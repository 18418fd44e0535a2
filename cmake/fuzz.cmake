# Fuzz targets: tests/fuzz/<target>_fuzz.c, kept inputs in tests/fuzz/corpus/<target>. With QUERN_FUZZ (clang) each is a
# libFuzzer program; else its test replays the kept inputs and changes of them, in any build.
# As a test, a libFuzzer program tries so many inputs, from a fixed seed. To search for longer:
#   build/fuzz/tests/fuzz_<target> -max_total_time=600 <an empty folder> tests/fuzz/corpus/<target>
# An input that failed goes into the target's folder of kept inputs.
find_path(QUERN_CJSON_INCLUDE NAMES cjson/cJSON.h REQUIRED)
find_library(QUERN_CJSON_LIBRARY NAMES cjson libcjson.a REQUIRED)
file(GLOB QUERN_LIST_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tools/quern/spec*.c
  ${CMAKE_CURRENT_SOURCE_DIR}/tools/quern/manifest*.c ${CMAKE_CURRENT_SOURCE_DIR}/tools/quern/model_config*.c)
file(GLOB targets CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tests/fuzz/*_fuzz.c)
add_custom_target(quern_fuzz)
foreach(source ${targets})
  get_filename_component(name ${source} NAME_WE)
  string(REGEX REPLACE "_fuzz$" "" target ${name})
  set(corpus ${CMAKE_CURRENT_SOURCE_DIR}/tests/fuzz/corpus/${target})
  add_executable(fuzz_${target} ${source} ${CMAKE_CURRENT_SOURCE_DIR}/tests/fuzz/file.c)
  set_target_properties(fuzz_${target} PROPERTIES C_STANDARD 11 RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(fuzz_${target} PRIVATE quern_test_support)
  add_dependencies(quern_fuzz fuzz_${target})
  if(target STREQUAL manifest)
    target_sources(fuzz_${target} PRIVATE ${QUERN_LIST_SOURCES})
    target_include_directories(fuzz_${target} SYSTEM PRIVATE ${QUERN_CJSON_INCLUDE})
    target_link_libraries(fuzz_${target} PRIVATE ${QUERN_CJSON_LIBRARY})
  endif()
  if(QUERN_FUZZ)
    # New inputs go into the build folder; the kept ones are read only.
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz/${target})
    target_link_options(fuzz_${target} PRIVATE -fsanitize=fuzzer)
    set(runs 20000)
    if(target MATCHES "^(row|database)$") # a database is made for each
      set(runs 400)
    endif()
    add_test(NAME fuzz/${target} COMMAND fuzz_${target} -seed=1 -runs=${runs} -timeout=60
      -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix=${CMAKE_BINARY_DIR}/fuzz/${target}.
      ${CMAKE_BINARY_DIR}/fuzz/${target} ${corpus})
  else()
    target_sources(fuzz_${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/tests/fuzz/replay.c)
    set(changes 20)
    if(target MATCHES "^(row|database)$") # a database is made for each
      set(changes 2)
    endif()
    add_test(NAME fuzz/${target} COMMAND fuzz_${target} --changes=${changes} ${corpus})
  endif()
  set_tests_properties(fuzz/${target} PROPERTIES LABELS fuzz TIMEOUT 300)
endforeach()
