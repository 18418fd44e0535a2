# kernel_templates/ as a C table (codegen/source.h: qn_templates). The model's bodies are not embedded: they are installed.
file(GLOB_RECURSE QUERN_TEMPLATES CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}/kernel_templates
  ${CMAKE_CURRENT_SOURCE_DIR}/kernel_templates/*.cu
  ${CMAKE_CURRENT_SOURCE_DIR}/kernel_templates/*.cuh
  ${CMAKE_CURRENT_SOURCE_DIR}/kernel_templates/*.h)
list(FILTER QUERN_TEMPLATES EXCLUDE REGEX "^model/")
list(SORT QUERN_TEMPLATES)
list(TRANSFORM QUERN_TEMPLATES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/kernel_templates/ OUTPUT_VARIABLE QUERN_TEMPLATE_FILES)
set(QUERN_TEMPLATE_TABLE ${CMAKE_CURRENT_BINARY_DIR}/templates_embedded.c)
add_custom_command(OUTPUT ${QUERN_TEMPLATE_TABLE}
  COMMAND ${CMAKE_COMMAND} "-DROOT=${CMAKE_CURRENT_SOURCE_DIR}/kernel_templates" "-DFILES=${QUERN_TEMPLATES}"
          "-DOUT=${QUERN_TEMPLATE_TABLE}" -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${QUERN_TEMPLATE_FILES} ${CMAKE_CURRENT_SOURCE_DIR}/cmake/embed.cmake
  VERBATIM COMMENT "Embedding kernel templates")
