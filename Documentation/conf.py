# SPDX-License-Identifier: GPL-2.0
"""How Sphinx builds these pages."""

project = "rflash"
author = "rflash maintainers"
project_copyright = "2026, rflash maintainers"
version = release = "0.1.0"
extensions = []
exclude_patterns = ["man", "requirements.txt"]
html_theme = "alabaster"
html_theme_options = {"description": "remote flash as local disks", "page_width": "1060px"}
html_sidebars = {"**": ["about.html", "localtoc.html", "navigation.html", "searchbox.html"]}
html_show_sphinx = False
highlight_language = "none"
