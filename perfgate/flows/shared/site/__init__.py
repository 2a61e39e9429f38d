"""The pages of main's history, from any store.

``read_site`` reads a project's stored runs once; ``SitePages`` answers an address with
a page. `perfgate site` asks it for every address of ``file_addresses`` and writes the
answers, a service asks for what its readers open. Both get the same pages.

All links are relative, so a site works from files, below any path of a server, and from
a branch of pages:

| address | page |
|---|---|
| ``index.html`` | open regressions, the workloads with their leading numbers, the testbeds |
| ``open.html`` | what is open, accepted, measured side by side, and settled |
| ``gates.html`` | the verdicts on changes, and what became of each failure |
| ``fleet.html`` | the health of each testbed, and the checklist over time |
| ``series/index.html`` | every series |
| ``series/NAME-KEY.html`` | one metric of one place on one testbed; with ``-bBRANCH`` of one branch alone |
| ``runs/index.html``, ``runs/page-N.html`` | the runs, newest first |
| ``runs/ID.html`` | one run, by the first 12 digits of its id |
| ``compare/ID-ID.html`` | two runs, the earlier one first |

A service also answers ``compare/index.html?earlier=ID&later=ID``, by the first digits
of the ids; with ``SiteLinks(forms=True)`` the pages have a form that leads there.
"""
