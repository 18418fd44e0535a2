# SPDX-License-Identifier: Apache-2.0
"""The parts of generate.py, a subject each."""
