"""`python -m lab COMMAND`."""

import typer

from .campaign import campaign

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def lab() -> None:
    """Measure, fit and judge."""


app.command()(campaign)

if __name__ == "__main__":
    app()
