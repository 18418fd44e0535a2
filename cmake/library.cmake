# libquern: one set of objects, static and shared.
file(GLOB QUERN_SOURCES CONFIGURE_DEPENDS
  ${CMAKE_CURRENT_SOURCE_DIR}/src/*/*.c ${CMAKE_CURRENT_SOURCE_DIR}/cache/*.c)
add_library(quern_objects OBJECT ${QUERN_SOURCES} ${QUERN_TEMPLATE_TABLE})
target_include_directories(quern_objects
  PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/include
  PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/kernel_templates
  SYSTEM PRIVATE ${QUERN_CUDA_INCLUDE} ${QUERN_XXHASH_INCLUDE} ${SQLite3_INCLUDE_DIRS})
target_compile_definitions(quern_objects PRIVATE _GNU_SOURCE)
set_target_properties(quern_objects PROPERTIES POSITION_INDEPENDENT_CODE ON C_STANDARD 11 C_EXTENSIONS ON
  C_VISIBILITY_PRESET hidden)
target_link_libraries(quern_objects PRIVATE quern_warnings)

set(QUERN_LINK ${QUERN_SQLITE_LIBRARY} ${QUERN_XXHASH_LIBRARY} Threads::Threads ${CMAKE_DL_LIBS} m)
add_library(quern_static STATIC $<TARGET_OBJECTS:quern_objects>)
add_library(quern_shared SHARED $<TARGET_OBJECTS:quern_objects>)
# One soname for all of a major version: tests/embed/abi.txt keeps what code was compiled against. install.cmake says the same.
foreach(kind static shared)
  set_target_properties(quern_${kind} PROPERTIES OUTPUT_NAME quern EXPORT_NAME ${kind} VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE C)
  target_include_directories(quern_${kind} INTERFACE
    $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  add_library(quern::${kind} ALIAS quern_${kind})
endforeach()
target_link_libraries(quern_shared PRIVATE ${QUERN_LINK})
# The archive's users link these too: by file here, by name (never an absolute path) in the installed package.
target_link_libraries(quern_static INTERFACE "$<BUILD_INTERFACE:${QUERN_LINK}>"
  $<INSTALL_INTERFACE:sqlite3> $<INSTALL_INTERFACE:xxhash> $<INSTALL_INTERFACE:pthread> $<INSTALL_INTERFACE:dl>
  $<INSTALL_INTERFACE:m>)
target_link_options(quern_shared PRIVATE
  -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/cmake/exports.map -Wl,--no-undefined)
set_target_properties(quern_shared PROPERTIES LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cmake/exports.map)

# What tools and tests build against: the static library with its internal headers.
add_library(quern_internal INTERFACE)
target_link_libraries(quern_internal INTERFACE quern_static quern_warnings)
target_compile_definitions(quern_internal INTERFACE _GNU_SOURCE)
target_include_directories(quern_internal INTERFACE ${CMAKE_CURRENT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR}
  ${CMAKE_CURRENT_SOURCE_DIR}/kernel_templates)
target_include_directories(quern_internal SYSTEM INTERFACE ${QUERN_CUDA_INCLUDE} ${QUERN_XXHASH_INCLUDE} ${SQLite3_INCLUDE_DIRS})
