# Tests: every tests/<label>/*_test.c is one program and one ctest entry with that label; *.sh scripts likewise.
# tests/support/*.c is linked into each.
find_path(QUERN_CMOCKA_INCLUDE NAMES cmocka.h REQUIRED)
if(QUERN_STATIC_DEPS)
  find_library(QUERN_CMOCKA_LIBRARY NAMES libcmocka-static.a libcmocka.a cmocka REQUIRED)
else()
  find_library(QUERN_CMOCKA_LIBRARY NAMES cmocka REQUIRED)
endif()
file(GLOB QUERN_SUPPORT_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tests/support/*.c)
# npy.c: tests read the .npy files of tests/data as the command does. model*.c: tests/simt runs kernels on the model.
file(GLOB QUERN_MODEL_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tools/quern/model*.c)
add_library(quern_test_support STATIC ${QUERN_SUPPORT_SOURCES} ${CMAKE_CURRENT_SOURCE_DIR}/tools/quern/npy.c
  ${QUERN_MODEL_SOURCES})
set_target_properties(quern_test_support PROPERTIES C_STANDARD 11)
target_link_libraries(quern_test_support PUBLIC quern_internal ${QUERN_CMOCKA_LIBRARY})
target_include_directories(quern_test_support PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/tests
  ${CMAKE_CURRENT_SOURCE_DIR}/tools SYSTEM PUBLIC ${QUERN_CMOCKA_INCLUDE})

foreach(label unit gpu simt fault)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tests/${label}/*_test.c)
  foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${label}_${name} ${source})
    set_target_properties(${label}_${name} PROPERTIES C_STANDARD 11 RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    target_link_libraries(${label}_${name} PRIVATE quern_test_support)
    add_test(NAME ${label}/${name} COMMAND ${label}_${name})
    # The compile tests' work is NVRTC's, which sanitizers don't see: label heavy, left out of the sanitizer builds.
    set(labels ${label})
    if(name MATCHES "_compile_test$")
      list(APPEND labels heavy)
    endif()
    set_tests_properties(${label}/${name} PROPERTIES LABELS "${labels}" TIMEOUT 1800
      ENVIRONMENT "QUERN_TEST_SOURCE=${CMAKE_CURRENT_SOURCE_DIR};QUERN_TEST_BUILD=${CMAKE_BINARY_DIR}")
    if(label STREQUAL gpu)
      set_tests_properties(${label}/${name} PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: no device")
    endif()
  endforeach()
endforeach()

# The command line: scripts beside their expected output (tests/cli). The installed package: tests/embed.
if(QUERN_BUILD_TOOLS)
  file(GLOB transcripts CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tests/cli/*.expected)
  foreach(transcript ${transcripts})
    get_filename_component(name ${transcript} NAME_WE)
    add_test(NAME cli/${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tests/cli/run.sh $<TARGET_FILE:quern_command> ${name})
    set_tests_properties(cli/${name} PROPERTIES LABELS unit TIMEOUT 300)
  endforeach()
endif()
if(QUERN_TOP AND NOT QUERN_SANITIZE)
  add_test(NAME embed/package COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tests/embed/run.sh ${CMAKE_BINARY_DIR})
  set_tests_properties(embed/package PROPERTIES LABELS embed TIMEOUT 600)
endif()
