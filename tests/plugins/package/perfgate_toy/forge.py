"""A forge of one's own; enough to be found."""

TOKEN_VARIABLES = ("TOY_TOKEN",)
API_URL = "https://toy.example/api"
SERVER_URL = "https://toy.example"
LINE = "{repository}/{commit}/{path}?line={line}"
