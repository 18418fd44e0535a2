# Libraries (SQLite, xxHash, cmocka, cJSON: the distribution's) and the two CUDA headers, cuda.h and nvrtc.h: from
# QUERN_CUDA_INCLUDE, a CUDA toolkit, or the wheels that tools/deps.sh unpacks into the build folder.
find_package(Threads REQUIRED)
find_package(SQLite3 3.34 REQUIRED)

find_path(QUERN_XXHASH_INCLUDE xxhash.h REQUIRED)
if(QUERN_STATIC_DEPS)
  find_library(QUERN_XXHASH_LIBRARY NAMES libxxhash.a REQUIRED)
  find_library(QUERN_SQLITE_LIBRARY NAMES libsqlite3.a REQUIRED)
else()
  find_library(QUERN_XXHASH_LIBRARY NAMES xxhash REQUIRED)
  set(QUERN_SQLITE_LIBRARY ${SQLite3_LIBRARIES})
endif()

find_path(QUERN_CUDA_INCLUDE NAMES cuda.h
  HINTS ${CMAKE_BINARY_DIR}/deps/include $ENV{CUDA_HOME}/include $ENV{CUDA_PATH}/include
  PATHS /usr/local/cuda/include
  DOC "Folder of cuda.h and nvrtc.h")
if(NOT QUERN_CUDA_INCLUDE OR NOT EXISTS ${QUERN_CUDA_INCLUDE}/nvrtc.h)
  message(FATAL_ERROR "cuda.h and nvrtc.h were not found. Run tools/deps.sh, or set QUERN_CUDA_INCLUDE to the folder "
    "that has both (a CUDA toolkit's include folder).")
endif()

add_library(quern_warnings INTERFACE)
target_compile_options(quern_warnings INTERFACE -Wall -Wextra -Wno-missing-field-initializers
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes -Wshadow -Wpointer-arith -Wvla>
  $<$<BOOL:${QUERN_WERROR}>:-Werror>)
if(QUERN_SANITIZE)
  add_compile_options(-fsanitize=${QUERN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${QUERN_SANITIZE})
endif()
if(QUERN_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "QUERN_FUZZ needs clang: configure with CC=clang CXX=clang++.")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()
