"""The languages of reports: English sentences in code and templates, and a catalogue of the Chinese ones."""
