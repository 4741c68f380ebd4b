"""What a family of data classes is; densities.toml limits how many there are."""

from tools.measure.families import DataClass, families, in_source, same_names


def of(module: str, name: str, fields: str) -> DataClass:
    (found,) = in_source(f"class {name}:\n" + "".join(f"    {each}: int\n" for each in fields), module=module)
    return found


def test_classes_of_different_modules_that_share_three_of_five_fields_are_a_family_also_by_others() -> None:
    one, two, three = of("a", "A", "abcd"), of("b", "B", "abcde"), of("c", "C", "bcde")
    apart, near = of("d", "D", "xyz"), of("b", "E", "abcde")
    # Three of the six that A and C have together are shared: they belong together by B.
    assert not one.resembles(of("c", "C", "cdexy"))
    assert [{each.name for each in family} for family in families([one, apart, two, three])] == [{"A", "B", "C"}]
    assert families([two, near]) == [], "of one module"
    assert families([of("a", "A", "ab"), of("b", "B", "ab")]) == [], "two fields are no fact"


def test_a_class_counts_with_the_fields_that_it_states() -> None:
    source = "class A:\n    a: int\n    b: int\nclass B(A):\n    c: int\nclass C:\n    x: int\n    y: int\n"
    assert [(each.name, each.lines) for each in in_source(source, module="m")] == [("A", 3), ("C", 3)]


def test_names_count_once_for_each_module() -> None:
    classes = [of("a", "_Place", "ab"), of("a", "Place", "cd"), of("b", "Place", "ab"), of("c", "Other", "ab")]
    assert same_names(classes, least=2) == {"Place": 2}
