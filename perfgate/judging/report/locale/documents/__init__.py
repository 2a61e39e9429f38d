"""Sentences that the gate and the checklist write into documents, and their Chinese words, a module for each area.

Documents are English whatever language a report is in. A test holds every sentence here against the code that writes it.
"""
