// SPDX-License-Identifier: Apache-2.0
// Rows of values that are printed as an aligned table or as JSON. Used by every subcommand that prints a list; a
// command's whole JSON document is a cJSON object that it fills and gives to json_print.
#ifndef QUERN_TOOLS_TABLE_H
#define QUERN_TOOLS_TABLE_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

typedef enum table_kind {
    TABLE_TEXT, // const char *; NULL is printed as "-" and null
    TABLE_JSON, // the same, of text that is JSON itself: "[2, 3]"
    TABLE_INT,  // int64_t
    TABLE_REAL, // double; NaN is printed as "-" and null
    TABLE_VALUE // double that may be NaN or infinite itself: these are printed as what they are, in JSON as strings
} table_kind;

typedef struct table_column {
    const char *title; // above the column; NULL: in JSON only
    const char *key;   // in JSON; NULL: in the table only
    table_kind kind;
    int decimals; // TABLE_REAL, TABLE_VALUE
} table_column;

typedef struct table table;

table *table_create(const table_column *columns, size_t count); // columns must outlive it
void table_destroy(table *t);
void table_add(table *t, ...); // one value a column, of its kind
size_t table_rows(const table *t);
void table_print(const table *t);  // to stdout; nothing when it has no rows
cJSON *table_json(const table *t); // an array of objects; the caller's

void json_print(cJSON *document); // to stdout, with a newline; deletes it

#endif
