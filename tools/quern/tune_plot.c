// SPDX-License-Identifier: Apache-2.0
// Heat maps of tuning results as one SVG file: a panel for each range of sizes, local_k along, block size upwards, the
// best time of each pair in its cell. Dark is fast; the scale is the ratio to the panel's best, up to its worst or three. Called by
// explain and run.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tune.h"
#include "tune/space.h"

enum { CELL_W = 58, CELL_H = 34, LEFT = 92, TOP = 74, BOTTOM = 58, RIGHT = 230, GAP = 24 };

typedef struct panel {
    const qn_family *family;
    const qn_knob *along, *upwards;
    size_t along_knob, upwards_knob;
    double ns[QN_MAX_CHOICES][QN_MAX_CHOICES]; // 0: not timed
    const qn_tune_row *best;
    qn_config best_config;
    double least, top; // the best time; the ratio at the scale's end
} panel;

// The axes: by name where the family has them, else the two knobs with most numeric choices.
static void choose_axes(panel *p)
{
    const qn_family *f = p->family;
    p->along_knob = qn_space_knob(f, "local_k"), p->upwards_knob = qn_space_knob(f, "block");
    if (p->along_knob == f->knob_count || p->upwards_knob == f->knob_count) {
        p->along_knob = p->upwards_knob = 0;
        for (size_t k = 0; k < f->knob_count; k++)
            if (f->knobs[k].choice_count > f->knobs[p->along_knob].choice_count) p->along_knob = k;
        if (p->along_knob == 0 && f->knob_count > 1) p->upwards_knob = 1;
        for (size_t k = 0; k < f->knob_count; k++)
            if (k != p->along_knob && f->knobs[k].choice_count > f->knobs[p->upwards_knob].choice_count)
                p->upwards_knob = k;
    }
    p->along = &f->knobs[p->along_knob], p->upwards = &f->knobs[p->upwards_knob];
}

static size_t choice_of(const qn_knob *knob, int value)
{
    size_t i = 0;
    while (i < knob->choice_count && knob->choices[i] != value) i++;
    return i;
}

static void add_row(panel *p, const qn_tune_row *row)
{
    qn_config config;
    if (row->ns <= 0 || qn_config_parse(p->family, row->config, &config) != QUERN_OK) return;
    size_t x = choice_of(p->along, config.value[p->along_knob]);
    size_t y = choice_of(p->upwards, config.value[p->upwards_knob]);
    if (!strcmp(row->status, QN_TUNE_BEST)) p->best = row, p->best_config = config;
    if (!strcmp(row->status, QN_TUNE_WRONG) || x == p->along->choice_count || y == p->upwards->choice_count) return;
    if (p->ns[x][y] == 0 || row->ns < p->ns[x][y]) p->ns[x][y] = row->ns;
}

static void find_scale(panel *p)
{
    double most = 0;
    for (size_t x = 0; x < p->along->choice_count; x++)
        for (size_t y = 0; y < p->upwards->choice_count; y++) {
            double ns = p->ns[x][y];
            if (ns > 0 && (p->least == 0 || ns < p->least)) p->least = ns;
            if (ns > most) most = ns;
        }
    p->top = p->least > 0 ? most / p->least : 1;
    p->top = p->top < 1.2 ? 1.2 : p->top > 3 ? 3 : p->top;
}

// ---- drawing

static void put_escaped(qn_text *svg, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            qn_text_puts(svg, "&lt;");
        else if (*text == '>')
            qn_text_puts(svg, "&gt;");
        else if (*text == '&')
            qn_text_puts(svg, "&amp;");
        else
            qn_text_put(svg, text, 1);
    }
}

static void put_text(qn_text *svg, int x, int y, const char *class, const char *text)
{
    qn_text_putf(svg, "<text x=\"%d\" y=\"%d\" class=\"%s\">", x, y, class);
    put_escaped(svg, text);
    qn_text_puts(svg, "</text>\n");
}

// Four colours of equal steps in lightness, dark first; between them straight lines.
static void colour_of(double ratio, double top, int rgb[3])
{
    static const int stops[4][3] = {{13, 59, 102}, {38, 122, 140}, {125, 187, 152}, {236, 240, 205}};
    double at = 3 * log(ratio) / log(top);
    at = at < 0 ? 0 : at > 3 ? 3 : at;
    int i = at >= 3 ? 2 : (int)at;
    for (int c = 0; c < 3; c++) rgb[c] = (int)(stops[i][c] + (at - i) * (stops[i + 1][c] - stops[i][c]) + 0.5);
}

// Three digits that matter.
static void time_text(double ns, char *out, size_t bytes)
{
    double us = 1e-3 * ns;
    snprintf(out, bytes, us < 10 ? "%.2f" : us < 100 ? "%.1f" : "%.0f", us);
}

static void draw_cell(const panel *p, size_t x, size_t y, int top, qn_text *svg)
{
    int left = LEFT + (int)x * CELL_W, above = top + (int)(p->upwards->choice_count - 1 - y) * CELL_H, rgb[3];
    char label[32];
    if (p->ns[x][y] <= 0) {
        qn_text_putf(svg, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" class=\"none\"/>\n", left, above,
                     CELL_W - 2, CELL_H - 2);
        return;
    }
    colour_of(p->ns[x][y] / p->least, p->top, rgb);
    bool dark = 3 * rgb[0] + 6 * rgb[1] + rgb[2] < 1280;
    bool wins = p->best && p->best_config.value[p->along_knob] == p->along->choices[x] &&
                p->best_config.value[p->upwards_knob] == p->upwards->choices[y];
    time_text(p->ns[x][y], label, sizeof label);
    qn_text_putf(svg, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#%02x%02x%02x\"%s/>\n", left, above,
                 CELL_W - 2, CELL_H - 2, (unsigned)rgb[0], (unsigned)rgb[1], (unsigned)rgb[2],
                 wins ? " class=\"best\"" : "");
    put_text(svg, left + CELL_W / 2 - 1, above + CELL_H / 2 + 4, dark ? "cell light" : "cell", label);
}

static void draw_axes(const panel *p, int top, qn_text *svg)
{
    int height = (int)p->upwards->choice_count * CELL_H, width = (int)p->along->choice_count * CELL_W;
    char label[32];
    for (size_t x = 0; x < p->along->choice_count; x++) {
        snprintf(label, sizeof label, "%d", p->along->choices[x]);
        put_text(svg, LEFT + (int)x * CELL_W + CELL_W / 2 - 1, top + height + 16, "tick", label);
    }
    for (size_t y = 0; y < p->upwards->choice_count; y++) {
        snprintf(label, sizeof label, "%d", p->upwards->choices[y]);
        put_text(svg, LEFT - 10, top + height - (int)y * CELL_H - CELL_H / 2 + 4, "tick end", label);
    }
    put_text(svg, LEFT + width / 2, top + height + 36, "tick", p->along->name);
    put_text(svg, 14, top + height / 2, "axis", p->upwards->name);
}

static void draw_scale(const panel *p, int top, qn_text *svg)
{
    enum { STEPS = 5 };
    int left = LEFT + (int)p->along->choice_count * CELL_W + 24;
    put_text(svg, left, top + 4, "axis", "times the best");
    for (int i = 0; i < STEPS; i++) {
        double ratio = pow(p->top, (double)i / (STEPS - 1));
        int rgb[3], above = top + 14 + i * 20;
        char label[64], us[32];
        colour_of(ratio, p->top, rgb);
        time_text(p->least * ratio, us, sizeof us);
        snprintf(label, sizeof label, "%.2f (%s us)%s", ratio, us, i + 1 == STEPS ? " or more" : "");
        qn_text_putf(svg, "<rect x=\"%d\" y=\"%d\" width=\"20\" height=\"16\" fill=\"#%02x%02x%02x\"/>\n", left, above,
                     (unsigned)rgb[0], (unsigned)rgb[1], (unsigned)rgb[2]);
        put_text(svg, left + 28, above + 13, "axis", label);
    }
}

static int panel_height(const panel *p)
{
    return TOP + (int)p->upwards->choice_count * CELL_H + BOTTOM;
}

static void draw_panel(const panel *p, const qn_tune_row *first, int y, qn_text *svg)
{
    qn_text line = QN_TEXT_INIT;
    int top = y + TOP;
    put_text(svg, 14, y + 24, "title", first->spec);
    qn_text_putf(&line, "%s (timed: %s), %s, %s: best microseconds of each pair", first->bucket, first->sizes,
                 first->device.name, first->arch);
    put_text(svg, 14, y + 42, "axis", qn_text_string(&line));
    if (p->best) {
        qn_text_clear(&line);
        qn_text_putf(&line, "chosen: %s", p->best->config);
        put_text(svg, 14, y + 58, "axis", qn_text_string(&line));
    }
    for (size_t a = 0; a < p->along->choice_count; a++)
        for (size_t u = 0; u < p->upwards->choice_count; u++) draw_cell(p, a, u, top, svg);
    draw_axes(p, top, svg);
    draw_scale(p, top, svg);
    qn_text_fini(&line);
}

static const char style[] =
    "<style>text{font:12px sans-serif;fill:#222}.title{font-size:15px;font-weight:600}.cell,.tick{text-anchor:middle}"
    ".end{text-anchor:end}.light{fill:#fff}.none{fill:#f3f3f3;stroke:#ddd}.best{stroke:#d1495b;stroke-width:3}"
    "</style>\n";

static quern_status draw_all(const qn_family *family, const qn_tune_list *rows, panel *p, qn_text *svg)
{
    int y = 0;
    if (!rows->count) return qn_fail(QUERN_BAD_ARGUMENT, "there are no times of trials");
    qn_text body = QN_TEXT_INIT;
    for (size_t i = 0, next; i < rows->count; i = next) {
        *p = (panel){.family = family};
        choose_axes(p);
        next = qn_tune_next_problem(rows->row, rows->count, i);
        for (size_t r = i; r < next; r++) add_row(p, &rows->row[r]);
        find_scale(p);
        if (p->least <= 0) continue;
        draw_panel(p, &rows->row[i], y, &body);
        y += panel_height(p) + GAP;
    }
    if (!y) {
        qn_text_fini(&body);
        return qn_fail(QUERN_BAD_ARGUMENT, "nothing that was timed has both knobs of the plot");
    }
    int width = LEFT + (int)p->along->choice_count * CELL_W + RIGHT;
    qn_text_putf(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n",
                 width, y, width, y);
    qn_text_puts(svg, style);
    qn_text_putf(svg, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", width, y);
    qn_text_puts(svg, qn_text_string(&body));
    qn_text_puts(svg, "</svg>\n");
    quern_status status = qn_text_check(&body);
    qn_text_fini(&body);
    return status;
}

quern_status tune_plot(const char *file, const qn_family *family, const qn_tune_list *rows)
{
    qn_text svg = QN_TEXT_INIT;
    panel *p = malloc(sizeof *p);
    if (!p) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: a plot");
    quern_status status = draw_all(family, rows, p, &svg);
    if (status != QUERN_OK)
        qn_fail_in(status, "%s is not written", file);
    else
        status = output_text(file, svg.bytes, svg.length);
    free(p);
    qn_text_fini(&svg);
    return status;
}
