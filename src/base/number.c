// SPDX-License-Identifier: Apache-2.0
// Numbers as text and back, whatever the process's locale is. Called for spec text, options and environment.
//   (1) The locale is never set, for the process or the thread.
//   (2) A real that is written reads back to the same bits; -0 keeps its sign.
#include "base/text.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;
static locale_t c_locale;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

// snprintf takes the thread's decimal point, which may be several bytes: whatever is no digit, sign or e becomes a '.'.
static void to_c_point(char *text)
{
    char *to = text;
    bool in_point = false;

    for (const char *from = text; *from; from++) {
        if (strchr("0123456789+-e", *from)) {
            *to++ = *from;
            in_point = false;
        } else if (!in_point) {
            *to++ = '.';
            in_point = true;
        }
    }
    *to = 0;
}

void qn_text_put_real(qn_text *text, double value)
{
    char digits[64];
    double back;

    if (isnan(value)) {
        qn_text_puts(text, "nan");
        return;
    }
    if (isinf(value)) {
        qn_text_puts(text, value < 0 ? "-inf" : "inf");
        return;
    }
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        to_c_point(digits);
        if (qn_parse_real(digits, &back) && back == value) break;
    }
    qn_text_puts(text, digits);
}

bool qn_parse_int(const char *string, int64_t *value)
{
    bool negative = *string == '-';
    const char *at = string + negative;
    int base = 10;
    int64_t sum = 0;

    if (at[0] == '0' && (at[1] == 'x' || at[1] == 'X')) at += 2, base = 16;
    if (!*at) return false;
    for (; *at; at++) {
        int digit;
        if (*at >= '0' && *at <= '9')
            digit = *at - '0';
        else if (base == 16 && *at >= 'a' && *at <= 'f')
            digit = *at - 'a' + 10;
        else if (base == 16 && *at >= 'A' && *at <= 'F')
            digit = *at - 'A' + 10;
        else
            return false;
        // Summed with the sign, so that the smallest number fits too.
        if (__builtin_mul_overflow(sum, (int64_t)base, &sum)) return false;
        if (__builtin_add_overflow(sum, (int64_t)(negative ? -digit : digit), &sum)) return false;
    }
    *value = sum;
    return true;
}

// [-] digits [. digits] [e [+-] digits], with a digit in the first part; *nonzero: it has a digit other than 0.
static bool is_decimal(const char *at, bool *nonzero)
{
    size_t digits = 0;
    bool point = false;

    *nonzero = false;
    if (*at == '-') at++;
    for (;; at++) {
        if (*at >= '0' && *at <= '9') {
            digits++;
            if (*at != '0') *nonzero = true;
        } else if (*at == '.' && !point)
            point = true;
        else
            break;
    }
    if (!digits) return false;
    if (*at != 'e' && *at != 'E') return !*at;
    at++;
    if (*at == '+' || *at == '-') at++;
    if (!*at) return false;
    return at[strspn(at, "0123456789")] == 0;
}

bool qn_parse_real(const char *string, double *value)
{
    bool nonzero;

    if (!strcmp(string, "inf")) return *value = (double)INFINITY, true;
    if (!strcmp(string, "-inf")) return *value = -(double)INFINITY, true;
    if (!strcmp(string, "nan")) return *value = (double)NAN, true;
    if (!is_decimal(string, &nonzero)) return false;
    pthread_once(&c_locale_once, make_c_locale);
    if (!c_locale) return false;
    double number = strtod_l(string, NULL, c_locale);
    if (isinf(number) || (nonzero && number == 0)) return false; // does not fit
    *value = number;
    return true;
}
