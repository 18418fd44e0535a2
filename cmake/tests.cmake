# Tests: every tests/<label>/*_test.c is one program and one ctest entry with that label; *.sh scripts likewise.
# tests/support/*.c is linked into each.
find_path(QUERN_CMOCKA_INCLUDE NAMES cmocka.h REQUIRED)
if(QUERN_STATIC_DEPS)
  find_library(QUERN_CMOCKA_LIBRARY NAMES libcmocka-static.a libcmocka.a cmocka REQUIRED)
else()
  find_library(QUERN_CMOCKA_LIBRARY NAMES cmocka REQUIRED)
endif()
file(GLOB QUERN_SUPPORT_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tests/support/*.c)
# npy.c, output.c: tests read and write the .npy files as the command does. model*.c: tests/simt runs kernels on the model.
file(GLOB QUERN_MODEL_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tools/quern/model*.c)
# tune_check.c, tune_<family>.c: what the tuner checks its candidates with is tested without a device.
file(GLOB QUERN_SUBJECT_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tools/quern/tune_*.c)
list(FILTER QUERN_SUBJECT_SOURCES EXCLUDE REGEX "tune_(jobs|run|compare|table|rows|plot)\\.c$")
add_library(quern_test_support STATIC ${QUERN_SUPPORT_SOURCES} ${CMAKE_CURRENT_SOURCE_DIR}/tools/quern/npy.c
  ${CMAKE_CURRENT_SOURCE_DIR}/tools/quern/output.c
  ${CMAKE_CURRENT_SOURCE_DIR}/tools/quern/device.c ${CMAKE_CURRENT_SOURCE_DIR}/tools/quern/indexer_draw.c ${QUERN_MODEL_SOURCES} ${QUERN_SUBJECT_SOURCES})
set_target_properties(quern_test_support PROPERTIES C_STANDARD 11)
target_link_libraries(quern_test_support PUBLIC quern_internal ${QUERN_CMOCKA_LIBRARY})
target_include_directories(quern_test_support PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/tests
  ${CMAKE_CURRENT_SOURCE_DIR}/tools SYSTEM PUBLIC ${QUERN_CMOCKA_INCLUDE})

foreach(label unit gpu simt fault load)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tests/${label}/*_test.c)
  foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${label}_${name} ${source})
    set_target_properties(${label}_${name} PROPERTIES C_STANDARD 11 RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    target_link_libraries(${label}_${name} PRIVATE quern_test_support)
    add_test(NAME ${label}/${name} COMMAND ${label}_${name})
    # The compile tests' work is NVRTC's, which sanitizers don't see: label heavy, left out of the sanitizer builds.
    set(labels ${label})
    set(cost 1) # ctest -j begins with the dearest, so that no long one is left alone at the end
    if(name MATCHES "_compile_test$")
      list(APPEND labels heavy)
      set(cost 100)
    elseif(label STREQUAL simt)
      set(cost 200)
    endif()
    set_tests_properties(${label}/${name} PROPERTIES LABELS "${labels}" TIMEOUT 1800 COST ${cost}
      ENVIRONMENT "QUERN_TEST_SOURCE=${CMAKE_CURRENT_SOURCE_DIR};QUERN_TEST_BUILD=${CMAKE_BINARY_DIR}")
    if(label STREQUAL gpu)
      set_tests_properties(${label}/${name} PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: no device")
    endif()
  endforeach()
endforeach()

# The allocations of the library under test (tests/support/fault_memory.c), and the clock that the cache reads, come
# through these tests.
foreach(name memory_test cache_memory_test)
  target_link_options(fault_${name} PRIVATE -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc -Wl,--wrap=free)
endforeach()
target_link_options(fault_resource_test PRIVATE -Wl,--wrap=time)
target_link_options(unit_base_processors_test PRIVATE -Wl,--wrap=sched_getaffinity)

include(cmake/fuzz.cmake)

# The command line: scripts beside their expected output (tests/cli). The installed package: tests/embed.
if(QUERN_BUILD_TOOLS)
  file(GLOB transcripts CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tests/cli/*.expected)
  foreach(transcript ${transcripts})
    get_filename_component(name ${transcript} NAME_WE)
    add_test(NAME cli/${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tests/cli/run.sh $<TARGET_FILE:quern_command> ${name})
    set(labels unit)
    if(name STREQUAL run_model) # the work is the model's, which is compiled the same in every build
      list(APPEND labels heavy)
    endif()
    set_tests_properties(cli/${name} PROPERTIES LABELS "${labels}" TIMEOUT 300)
  endforeach()
endif()
# What ptxas made of kernels: tests/cubin.
if(QUERN_BUILD_TOOLS AND NOT QUERN_SANITIZE)
  add_test(NAME cubin/wgmma_registers
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tests/cubin/run.sh $<TARGET_FILE:quern_command>)
  set_tests_properties(cubin/wgmma_registers PROPERTIES LABELS unit TIMEOUT 900 SKIP_RETURN_CODE 77)
endif()
if(QUERN_TOP AND NOT QUERN_SANITIZE)
  add_test(NAME embed/package COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tests/embed/run.sh ${CMAKE_BINARY_DIR})
  set_tests_properties(embed/package PROPERTIES LABELS embed TIMEOUT 600 COST 90)
endif()

# A tool's NVTX library, which runtime_nvtx_test loads: made by NVTX's own header, of a CUDA toolkit or of its wheel.
find_path(QUERN_NVTX_INCLUDE NAMES nvtx3/nvToolsExt.h HINTS ${QUERN_CUDA_INCLUDE} ${CMAKE_BINARY_DIR}/deps/include
  DOC "Folder of nvtx3/nvToolsExt.h, for one test")
if(QUERN_NVTX_INCLUDE)
  add_library(quern_nvtx_tool MODULE ${CMAKE_CURRENT_SOURCE_DIR}/tests/support/tools/nvtx_tool.c)
  set_target_properties(quern_nvtx_tool PROPERTIES PREFIX "" C_STANDARD 11 C_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_include_directories(quern_nvtx_tool SYSTEM PRIVATE ${QUERN_NVTX_INCLUDE})
  target_include_directories(unit_runtime_nvtx_test SYSTEM PRIVATE ${QUERN_NVTX_INCLUDE})
  target_compile_definitions(unit_runtime_nvtx_test PRIVATE QUERN_HAS_NVTX)
  add_dependencies(unit_runtime_nvtx_test quern_nvtx_tool)
endif()
set_tests_properties(unit/runtime_nvtx_test PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: no nvtx3")

# The fake driver as a libcuda.so.1, on which tests/embed runs the examples where there is no GPU.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$" AND NOT QUERN_SANITIZE)
  add_library(quern_fake_cuda SHARED ${CMAKE_CURRENT_SOURCE_DIR}/tests/support/tools/fake_libcuda.c
    ${CMAKE_CURRENT_SOURCE_DIR}/tests/support/fake_driver.c)
  set_target_properties(quern_fake_cuda PROPERTIES OUTPUT_NAME cuda VERSION 1 SOVERSION 1 C_STANDARD 11
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/fake_cuda)
  target_link_libraries(quern_fake_cuda PRIVATE quern_internal)
  target_include_directories(quern_fake_cuda PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/tests)
  target_link_options(quern_fake_cuda PRIVATE -Wl,--exclude-libs,ALL -Wl,-Bsymbolic)
endif()
