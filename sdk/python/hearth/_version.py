# SPDX-License-Identifier: Apache-2.0
"""The version of this package: that of the repository (its file VERSION); a test compares the two."""

__version__ = "0.1.0"
