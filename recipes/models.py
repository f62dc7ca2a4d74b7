"""Print the folder of a set of models, given its path or the name under which it ships.

python recipes/models.py people-en
"""

from speechssl.checkpoints import model_folder
from speechssl.cli import run_program


def main(models: str) -> None:
    print(model_folder(models).resolve())


if __name__ == "__main__":
    run_program(main)
